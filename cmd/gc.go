package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// By default, Go allows as much garbage as live memory. With many Echoes that costs too much
// memory. With few Echoes the collector runs too often. docs/performance.md has measurements.
const (
	// garbagePercent is the allowed garbage, relative to live memory.
	garbagePercent = 50
	// minGarbage is the amount of garbage in bytes that is always allowed.
	minGarbage = 24 << 20
)

// tuneGC sets these limits, unless the environment variable GOGC is set.
func tuneGC(getenv func(string) string) {
	if getenv("GOGC") == "" {
		adjustGCPercent()
	}
}

// adjustGCPercent computes the limit from the live memory that the last collection found. It
// runs again after each collection.
func adjustGCPercent() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(gcPercent(live[0].Value.Uint64()))
	runtime.AddCleanup(new(*byte), func(struct{}) { adjustGCPercent() }, struct{}{})
}

// gcPercent returns the value of GOGC for the given live memory.
func gcPercent(live uint64) int {
	const minLive = 4 << 20                                            // Before the first collection, live is 0.
	return int(max(garbagePercent, 100*minGarbage/max(live, minLive))) //nolint:gosec // At most 600.
}

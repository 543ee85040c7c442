package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// By default, Go allows as much garbage as live memory. With many Echoes that costs too much
// memory. With few Echoes the collector runs too often. test/performance/README.md has measurements.
const (
	// garbagePercent is the allowed garbage, relative to live memory.
	garbagePercent = 50
	// minGarbage is the amount of garbage in bytes that is always allowed.
	minGarbage = 24 << 20
	// memoryPercent is the part of GOMEMLIMIT up to which the Go runtime uses memory. The manifests
	// set GOMEMLIMIT to the memory limit of the container, which also counts what the runtime does
	// not: the program itself and what the kernel holds for it.
	memoryPercent = 90
)

// tuneGC sets these limits. The environment variable GOGC takes precedence over the limits of
// garbage.
func tuneGC(getenv func(string) string) {
	// Without GOMEMLIMIT, the limit is the largest number.
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		debug.SetMemoryLimit(limit / 100 * memoryPercent)
	}
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

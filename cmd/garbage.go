package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// Go lets there be as much garbage as there is live memory. With many Echoes that is too much
// memory, and with few too much work, as it is collected all the time. See docs/performance.md.
const (
	// garbagePercent is how much there may be, of what is live.
	garbagePercent = 50
	// minGarbage is how much there may be in any case, in bytes.
	minGarbage = 24 << 20
)

// limitGarbage sets these limits, unless the environment says something else.
func limitGarbage(getenv func(string) string) {
	if getenv("GOGC") == "" {
		limitNextCollection()
	}
}

// limitNextCollection goes by what the last collection found live, and again after the next.
func limitNextCollection() {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	debug.SetGCPercent(gcPercent(live[0].Value.Uint64()))
	runtime.AddCleanup(new(*byte), func(struct{}) { limitNextCollection() }, struct{}{})
}

// gcPercent is the limit, of so many live bytes.
func gcPercent(live uint64) int {
	const least = 4 << 20                                            // Before the first collection none are known.
	return int(max(garbagePercent, 100*minGarbage/max(live, least))) //nolint:gosec // 600 at the most.
}

package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercentFollowsLiveMemory(t *testing.T) {
	for live, want := range map[uint64]int{0: 600, 12 << 20: 200, 24 << 20: 100, 48 << 20: 50, 1 << 30: 50} {
		if got := gcPercent(live); got != want {
			t.Errorf("gcPercent(%d) = %d, want %d", live, got, want)
		}
	}
}

// GOGC, which the Go runtime has already read, takes precedence.
func TestTuneGCLimitsGarbageUnlessGOGCIsSet(t *testing.T) {
	const before = 200
	defer debug.SetGCPercent(debug.SetGCPercent(before))
	tuneGC(env("GOGC=200"))
	if got := debug.SetGCPercent(before); got != before {
		t.Errorf("with GOGC=200: GC percent = %d, want %d", got, before)
	}
	tuneGC(env())
	live := make([]byte, 64<<20)
	for deadline := time.Now().Add(time.Minute); ; { // The first collections may not count it as live yet.
		runtime.GC()
		if limit := debug.SetGCPercent(before); limit == garbagePercent {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("with %d live bytes: GC percent is not %d after 1 minute", len(live), garbagePercent)
		}
	}
	runtime.KeepAlive(live)
}

func TestTuneGCLimitsMemoryTo90PercentOfGOMEMLIMIT(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for _, test := range []struct{ limit, want int64 }{
		{256 << 20, 256 << 20 / 100 * 90}, {math.MaxInt64, math.MaxInt64}, // Without GOMEMLIMIT, Go has no limit.
	} {
		for _, getenv := range []func(string) string{env("GOGC=200"), env()} {
			debug.SetMemoryLimit(test.limit)
			tuneGC(getenv)
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("GOMEMLIMIT %d, GOGC %q: memory limit = %d, want %d", test.limit, getenv("GOGC"), got, test.want)
			}
		}
	}
}

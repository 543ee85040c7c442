package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 600, 12 << 20: 200, 24 << 20: 100, 48 << 20: 50, 1 << 30: 50} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d live bytes: %d, want %d", live, got, want)
		}
	}
}

// TestLimitGarbage: GOGC, which the Go runtime has read already, comes first.
func TestLimitGarbage(t *testing.T) {
	const before = 200
	defer debug.SetGCPercent(debug.SetGCPercent(before))
	limitGarbage(env("GOGC=200"))
	if got := debug.SetGCPercent(before); got != before {
		t.Errorf("with GOGC=200: %d", got)
	}
	limitGarbage(env())
	live := make([]byte, 64<<20)
	for deadline := time.Now().Add(time.Minute); ; { // By then it is seen to be live.
		runtime.GC()
		if limit := debug.SetGCPercent(before); limit == garbagePercent {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("with %d live bytes there is no limit of %d %%", len(live), garbagePercent)
		}
	}
	runtime.KeepAlive(live)
}

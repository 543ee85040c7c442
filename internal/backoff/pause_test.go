package backoff

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestEachFailureDoublesThePauseUpToTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			pause := p.Record(1, 0)
			if got := p.Remaining(); pause != want*time.Second || got != pause {
				t.Fatalf("pause = %s, remaining = %s, want %s", pause, got, want*time.Second)
			}
			time.Sleep(pause)
		}
	})
}

func TestABurstOfWritesNeedsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		for i, want := range []time.Duration{0, 0, 1, 2, 4} {
			p.Record(3, 0)
			if got := p.Remaining(); got != want*time.Second || p.Length() != got {
				t.Fatalf("remaining after write %d = %s, length = %s, want %s", i+1, got, p.Length(), want*time.Second)
			}
			time.Sleep(p.Length())
		}
	})
}

func TestPausesStartAgainAfterAnIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		p.Record(1, 0)
		time.Sleep(time.Minute)
		if got := p.Record(1, 0); got != Min {
			t.Errorf("pause after an idle minute = %s, want %s", got, Min)
		}
	})
}

// A webhook that denies each write after some seconds would otherwise never be reported.
func TestFailuresThatAreRepeatedSlowlyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing, transient Pause
		for _, want := range []time.Duration{1, 2, 4} {
			got := failing.Record(1, SlowestWrite)
			if got != want*time.Second {
				t.Errorf("pause after a slow failure = %s, want %s", got, want*time.Second)
			}
			time.Sleep(got + SlowestWrite)
		}
		for _, want := range []time.Duration{0, 0, 0, 1} {
			if got := transient.Record(4, 2*Max); got != want*time.Second {
				t.Fatalf("pause after a transient failure = %s, want %s", got, want*time.Second)
			}
			time.Sleep(Max)
		}
	})
}

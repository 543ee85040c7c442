package backoff

import (
	"testing"
	"testing/synctest"
	"time"
)

var target = Target{Owner: "uid", What: "Deployment"}

func TestEachFailureDoublesThePauseUpToTheMaximum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff[string]
		reason := "denied"
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			pause := b.Failed(target, 1, &reason)
			got, report := b.Wait(target, 1)
			if pause != want*time.Second || got != pause || report != &reason {
				t.Fatalf("pause = %s, wait = %s with report %v, want %s with %v", pause, got, report, want*time.Second, &reason)
			}
			time.Sleep(got)
		}
	})
}

func TestABurstOfWritesNeedsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff[string]
		for i, want := range []time.Duration{0, 0, 1, 2, 4} {
			b.Succeeded(target, 1, 3)
			if got, _ := b.Wait(target, 1); got != want*time.Second || b.Pause(target) != got {
				t.Fatalf("wait after write %d = %s, pause = %s, want %s", i+1, got, b.Pause(target), want*time.Second)
			}
			time.Sleep(b.Pause(target))
		}
	})
}

func TestLastIsTheTimeOfTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff[string]
		if got := b.Last(target); !got.IsZero() {
			t.Errorf("last write = %s, want none", got)
		}
		b.Succeeded(target, 1, 3)
		time.Sleep(300 * time.Millisecond)
		if got := time.Since(b.Last(target)); got != 300*time.Millisecond {
			t.Errorf("the last write was %s ago, want 300ms", got)
		}
	})
}

func TestPausesStartAgainForTheNextGenerationAndAfterAnIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff[string]
		b.Failed(target, 1, new(string))
		if got, _ := b.Wait(target, 2); got != 0 {
			t.Errorf("wait for a new generation = %s, want none", got)
		}
		time.Sleep(time.Minute)
		if got := b.Failed(target, 1, new(string)); got != Min {
			t.Errorf("pause after an idle minute = %s, want %s", got, Min)
		}
		time.Sleep(2 * time.Minute)
		b.Failed(Target{Owner: "other"}, 1, nil)
		if len(b.entries) != 1 {
			t.Errorf("%d targets are remembered after two idle minutes, want only the new one", len(b.entries))
		}
	})
}

// A webhook that denies each write after some seconds would otherwise never be reported.
func TestFailuresThatAreRepeatedSlowlyCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff[string]
		for _, want := range []time.Duration{1, 2, 4} {
			got := b.Failed(Target{Owner: "slow"}, 1, new(string))
			if got != want*time.Second {
				t.Errorf("pause after a slow failure = %s, want %s", got, want*time.Second)
			}
			time.Sleep(got + slowestWrite)
		}
		for want := 1; want <= 4; want++ {
			if got := b.FailedUncertainly(target, 1); got != want {
				t.Fatalf("failures = %d, want %d", got, want)
			}
			time.Sleep(Max)
		}
	})
}

func TestOnlyARecentFailureCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Backoff[string]
		check := func(when string, want bool) {
			t.Helper()
			if got := b.HasFailed(target); got != want {
				t.Errorf("%s: HasFailed = %t, want %t", when, got, want)
			}
		}
		check("at first", false)
		b.FailedUncertainly(target, 1)
		time.Sleep(Max)
		check("before the next attempt", true)
		time.Sleep(2 * Max)
		check("long after", false)
		b.FailedUncertainly(target, 1)
		b.Succeeded(target, 1, 3)
		check("after a success", false)
		b.Failed(target, 1, new(string))
		check("after a reported failure", true)
	})
}

func TestForgetEndsThePauses(t *testing.T) {
	var b Backoff[string]
	b.Failed(target, 1, new(string))
	b.Forget(target)
	if got, report := b.Wait(target, 1); got != 0 || report != nil || !b.Last(target).IsZero() {
		t.Errorf("wait = %s with report %v after Forget, want none", got, report)
	}
}

package controller

import (
	"testing"
	"testing/synctest"
	"time"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
)

var anyTarget = target{echo: "uid", kind: "Deployment"}

func TestPaceDoublesThePauseAfterEachFailureUpToItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		failure := &status.Failure{Reason: echov1.ReasonRejected}
		for _, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
			p.failed(anyTarget, 1, failure)
			got, reported := p.wait(anyTarget, 1)
			if got != want*time.Second || reported != failure {
				t.Fatalf("pause = %s with failure %v, want %s with %v", got, reported, want*time.Second, failure)
			}
			time.Sleep(got)
		}
	})
}

func TestPaceAllowsABurstOfWritesAndThenPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		for i, want := range []time.Duration{0, 0, 1, 2, 4} {
			p.wrote(anyTarget, 1, 3)
			got, _ := p.wait(anyTarget, 1)
			if got != want*time.Second {
				t.Fatalf("pause after write %d = %s, want %s", i+1, got, want*time.Second)
			}
			time.Sleep(got)
		}
	})
}

func TestPaceKnowsTheTimeOfTheLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		if got := p.last(anyTarget); !got.IsZero() {
			t.Errorf("last write = %s, want none", got)
		}
		p.wrote(anyTarget, 1, 3)
		time.Sleep(300 * time.Millisecond)
		if got := time.Since(p.last(anyTarget)); got != 300*time.Millisecond {
			t.Errorf("last write was %s ago, want 300ms", got)
		}
	})
}

func TestPaceStartsAgainForTheNextGenerationAndAfterAnIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		p.failed(anyTarget, 1, &status.Failure{})
		if got, _ := p.wait(anyTarget, 2); got != 0 {
			t.Errorf("pause for a new generation = %s, want none", got)
		}
		time.Sleep(time.Minute)
		p.failed(anyTarget, 1, &status.Failure{})
		if got, _ := p.wait(anyTarget, 1); got != minPace {
			t.Errorf("pause after a idle minute = %s, want %s", got, minPace)
		}
		time.Sleep(2 * time.Minute)
		p.failed(target{echo: "other"}, 1, nil)
		if len(p.entries) != 1 {
			t.Errorf("pace remembers %d targets after two idle minutes, want only the new one", len(p.entries))
		}
	})
}

// A webhook that denies each write after some seconds would otherwise never be reported.
func TestPaceCountsFailuresThatAreRepeatedSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		for _, want := range []time.Duration{1, 2, 4} {
			p.failed(target{echo: "slow"}, 1, &status.Failure{})
			got, _ := p.wait(target{echo: "slow"}, 1)
			if got != want*time.Second {
				t.Errorf("pause after a slow failure = %s, want %s", got, want*time.Second)
			}
			time.Sleep(got + slowestWrite)
		}
		for want := 1; want <= maxTransient+1; want++ {
			if got := p.failed(anyTarget, 1, nil); got != want {
				t.Fatalf("failures = %d, want %d", got, want)
			}
			time.Sleep(maxBackoff)
		}
	})
}

package controller

import (
	"math"
	"time"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// So many writes need no pause: corrections of the same drift, all corrections of a child, and
	// writes of the status, of which a rollout causes several.
	correctionBurst = 2
	childBurst      = 20
	statusBurst     = 5

	// repeatedDriftPause is the pause from which on the status reports repeated drift.
	repeatedDriftPause = 4 * backoff.Min
)

func targetOf(echo *echov1.Echo, what string) backoff.Target {
	return backoff.Target{Owner: echo.UID, What: what}
}

// statusTarget is the target of writes of the status.
func statusTarget(echo *echov1.Echo) backoff.Target { return targetOf(echo, "status") }

// unwrittenStatus is the target of writes of the status that failed.
func unwrittenStatus(echo *echov1.Echo) backoff.Target { return targetOf(echo, "unwritten status") }

// serviceChange is the target of writes that change the Service for a new generation. They are never paused: the
// back-off only remembers their time.
func (rec *reconciliation) serviceChange() backoff.Target {
	return targetOf(rec.echo, "change of the Service")
}

func (rec *reconciliation) serviceChanged() {
	rec.backoff.Succeeded(rec.serviceChange(), rec.echo.Generation, math.MaxInt)
}

// lastServiceChange returns when the operator last changed the Service, or a zero time if that was not recently.
func (rec *reconciliation) lastServiceChange() time.Time {
	return rec.backoff.Last(rec.serviceChange())
}

// childOf is the target of all writes of a child.
func (rec *reconciliation) childOf(kind children.Kind) backoff.Target {
	return targetOf(rec.echo, kind.Name)
}

// correctionOf is the target of the writes that revert the same drift.
func (rec *reconciliation) correctionOf(kind children.Kind, correction string) backoff.Target {
	return targetOf(rec.echo, kind.Name+" "+correction)
}

// paused returns how long the next write of a child has to wait, and what to report meanwhile. A
// correction names the drift that the write would revert.
func (rec *reconciliation) paused(kind children.Kind, correction string) (time.Duration, *status.Failure) {
	paused, failure := rec.backoff.Wait(rec.childOf(kind), rec.echo.Generation)
	if correction == "" || failure != nil {
		return paused, failure
	}
	drift := rec.correctionOf(kind, correction)
	again, _ := rec.backoff.Wait(drift, rec.echo.Generation)
	if again > 0 && rec.backoff.Pause(drift) >= repeatedDriftPause {
		failure = repeatedDrift(kind, correction)
	}
	return max(paused, again), failure
}

// succeeded notes a successful write of a child. A correction names the drift that it has reverted.
func (rec *reconciliation) succeeded(kind children.Kind, correction string) {
	if correction == "" {
		rec.backoff.Forget(rec.childOf(kind))
		return
	}
	rec.backoff.Succeeded(rec.childOf(kind), rec.echo.Generation, childBurst)
	rec.backoff.Succeeded(rec.correctionOf(kind, correction), rec.echo.Generation, correctionBurst)
}

// fail returns what to report about a child until its next write.
func (rec *reconciliation) fail(kind children.Kind, reason, message string) outcome {
	failure := &status.Failure{Reason: reason, Message: kind.Name + ": " + message}
	return outcome{failure: failure, recheck: rec.backoff.Failed(rec.childOf(kind), rec.echo.Generation, failure)}
}

// repeatedDrift reports that an external writer changes a child again after each correction.
func repeatedDrift(kind children.Kind, correction string) *status.Failure {
	message := kind.Name + ": an external writer repeatedly changes " + correction
	if correction == recreation {
		message = kind.Name + ": an external client repeatedly deletes it"
	}
	return &status.Failure{Reason: echov1.ReasonRepeatedDrift, Message: message}
}

// recheckOwner returns when to read an object of another owner again. The watch does not report the deletion of an
// object without the operator's label.
func (rec *reconciliation) recheckOwner(kind children.Kind) time.Duration {
	target := targetOf(rec.echo, kind.Name+" of another owner")
	if paused, _ := rec.backoff.Wait(target, rec.echo.Generation); paused > 0 {
		return paused
	}
	return rec.backoff.Failed(target, rec.echo.Generation, nil)
}

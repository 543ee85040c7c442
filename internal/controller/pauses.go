package controller

import (
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

// serviceChange is the target of writes that change the Service for a new generation.
func serviceChange(echo *echov1.Echo) backoff.Target { return targetOf(echo, "change of the Service") }

// childOf is the target of all writes of a child.
func (p *pass) childOf(kind children.Kind) backoff.Target { return targetOf(p.echo, kind.Name) }

// correctionOf is the target of the writes that revert the same drift.
func (p *pass) correctionOf(kind children.Kind, correction string) backoff.Target {
	return targetOf(p.echo, kind.Name+" "+correction)
}

// paused returns how long the next write of a child has to wait, and what to report meanwhile. A
// correction names the drift that the write would revert.
func (p *pass) paused(kind children.Kind, correction string) (time.Duration, *status.Failure) {
	paused, failure := p.backoff.Wait(p.childOf(kind), p.echo.Generation)
	if correction == "" || failure != nil {
		return paused, failure
	}
	drift := p.correctionOf(kind, correction)
	again, _ := p.backoff.Wait(drift, p.echo.Generation)
	if again > 0 && p.backoff.Pause(drift) >= repeatedDriftPause {
		failure = repeatedDrift(kind, correction)
	}
	return max(paused, again), failure
}

// succeeded notes a successful write of a child. A correction names the drift that it has reverted.
func (p *pass) succeeded(kind children.Kind, correction string) {
	if correction == "" {
		p.backoff.Forget(p.childOf(kind))
		return
	}
	p.backoff.Succeeded(p.childOf(kind), p.echo.Generation, childBurst)
	p.backoff.Succeeded(p.correctionOf(kind, correction), p.echo.Generation, correctionBurst)
}

// fail returns what to report about a child until its next write.
func (p *pass) fail(kind children.Kind, reason, message string) child {
	failure := &status.Failure{Reason: reason, Message: kind.Name + ": " + message}
	return child{failure: failure, recheck: p.backoff.Failed(p.childOf(kind), p.echo.Generation, failure)}
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
func (p *pass) recheckOwner(kind children.Kind) time.Duration {
	target := targetOf(p.echo, kind.Name+" of another owner")
	if paused, _ := p.backoff.Wait(target, p.echo.Generation); paused > 0 {
		return paused
	}
	return p.backoff.Failed(target, p.echo.Generation, nil)
}

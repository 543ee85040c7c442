package controller

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// reconciliation is one reconciliation of an Echo.
type reconciliation struct {
	*EchoReconciler
	echo   *echov1.Echo
	inputs children.Inputs
	// readOnly is true if no child is written: the garbage collector deletes them, or a write took long and failed.
	// The status reports that failure before the next write, which may take long, too.
	readOnly bool

	// observed is what the status depends on.
	observed status.Observation
	// recheck is when to reconcile again without an event. 0 means that events suffice.
	recheck time.Duration
}

func (r *EchoReconciler) newReconciliation(echo *echov1.Echo) *reconciliation {
	isDeleted := !echo.DeletionTimestamp.IsZero()
	return &reconciliation{
		EchoReconciler: r, echo: echo, readOnly: isDeleted,
		inputs: children.Inputs{ServerImage: r.ServerImage, VerifierImage: r.VerifierImage},
	}
}

// report adds to the observation what the status reports about every child.
func (rec *reconciliation) report(result outcome) {
	if result.failure != nil {
		rec.observed.Rejected = append(rec.observed.Rejected, *result.failure)
	}
	if result.overridden != nil {
		rec.observed.Overridden = append(rec.observed.Overridden, *result.overridden)
	}
	if result.waiting != "" {
		rec.observed.Waiting = append(rec.observed.Waiting, result.waiting)
	}
	rec.recheck = earliest(rec.recheck, result.recheck)
}

// wants reports whether the Echo has a child of the kind. An administrator has to allow a verifier on every node.
func (rec *reconciliation) wants(kind children.Kind) bool {
	isAllowed := rec.AllowEveryNodeVerification || !kind.Verifier || !children.WantsVerifierDaemonSet(rec.echo)
	return isAllowed && kind.Wanted(rec.echo)
}

// outcome is what a reconciliation found or did about one child.
type outcome struct {
	// object is the child as the API server last returned it. It is nil if the Echo controls
	// none, or the child is being deleted.
	object client.Object
	// failure is why the child does not have its desired state.
	failure *status.Failure
	// overridden has the fields that admission changed, where the operator accepted the result.
	overridden *echov1.OverriddenChild
	// waiting is what the child waits for, without a failure.
	waiting string
	// terminating describes a child that is being deleted, and that the Echo is to have.
	terminating string
	// recheck is when to reconcile again without an event. 0 means that events suffice.
	recheck time.Duration
}

// earliest returns the shortest of the times that are not 0.
func earliest(times ...time.Duration) (shortest time.Duration) {
	for _, t := range times {
		if t > 0 && (shortest == 0 || t < shortest) {
			shortest = t
		}
	}
	return shortest
}

package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// canVerify reports whether the verifier may be written: the newest spec is rolled out, so that every
// result of the newest verifier is about it.
func canVerify(echo *echov1.Echo, observed status.Observation, in children.Inputs) bool {
	return len(children.ClusterIPs(in)) > 0 && status.IsRolledOut(echo, observed)
}

// observeOutdated returns the verifier as it is, while it may not be written.
func (r *EchoReconciler) observeOutdated(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs) (child, error) {
	result, err := r.observeChild(ctx, echo, c, in)
	result.outdated = true
	return result, err
}

// mayBeVerified reports whether a verifier may have existed when the status was written.
func mayBeVerified(echo *echov1.Echo) bool {
	verified := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionVerified)
	return verified != nil && verified.Reason != echov1.ReasonRollingOut && verified.Reason != echov1.ReasonEveryNodeNotAllowed
}

// observeVerifier adds the result for a verifier to the observation.
func (r *EchoReconciler) observeVerifier(observed *status.Observation, echo *echov1.Echo, c children.Kind, result child) {
	if !c.Wanted(echo) {
		return
	}
	verification := &status.Verification{Failure: result.failure, NotAllowed: !r.wants(echo, c), Outdated: result.outdated}
	switch o := result.object.(type) {
	case *appsv1.Deployment:
		verification.Deployment = o
	case *appsv1.DaemonSet:
		verification.DaemonSet = o
	}
	observed.Verification = verification
}

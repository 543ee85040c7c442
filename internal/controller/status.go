package controller

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// withTransitionTimes adds the transition times to the conditions. A new Echo that is not Ready
// has been so since its creation, and what a newer generation waits for starts when that is observed.
// Conditions of other types are not kept.
func withTransitionTimes(next echov1.EchoStatus, echo *echov1.Echo) echov1.EchoStatus {
	var conditions []metav1.Condition
	for _, condition := range next.Conditions {
		before := meta.FindStatusCondition(echo.Status.Conditions, condition.Type)
		if before != nil && !startsAnew(*before, condition) {
			conditions = append(conditions, *before)
		}
		if len(echo.Status.Conditions) == 0 && condition.Type == echov1.ConditionReady && condition.Status == metav1.ConditionFalse {
			condition.LastTransitionTime = echo.CreationTimestamp
		}
		meta.SetStatusCondition(&conditions, condition)
	}
	next.Conditions = conditions
	return next
}

// startsAnew reports whether the condition waits for something of another generation than before. Package status
// limits that time.
func startsAnew(before, after metav1.Condition) bool {
	isRollingOut := after.Type == echov1.ConditionProgressing && after.Status == metav1.ConditionTrue
	waits := isRollingOut || after.Status == metav1.ConditionUnknown
	return waits && after.ObservedGeneration != before.ObservedGeneration
}

// writeStatus writes the status if it changed, and records an event and metrics. If an external
// client changes the status repeatedly, it returns how long the next write has to wait.
func (r *EchoReconciler) writeStatus(ctx context.Context, echo *echov1.Echo, next echov1.EchoStatus) (paused time.Duration, err error) {
	if equality.Semantic.DeepEqual(echo.Status, next) {
		return 0, nil
	}
	t := statusTarget(echo)
	if paused, _ = r.backoff.Wait(t, echo.Generation); paused > 0 {
		return paused, nil
	}
	updated := echo.DeepCopy()
	updated.Status = next
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		r.backoff.FailedUncertainly(unwrittenStatus(echo), echo.Generation)
		return 0, err
	}
	r.expectations.Expect(client.ObjectKeyFromObject(echo), echoKind, updated, echo.ResourceVersion)
	r.backoff.Succeeded(t, echo.Generation, statusBurst)
	r.recordEvent(ctx, echo, updated)
	if firstReady(echo, updated) {
		r.Metrics.ObserveTimeToReady(time.Since(echo.CreationTimestamp.Time))
	}
	return 0, nil
}

// firstReady reports whether the Echo has become ready for the first time. The transition time of an Echo that was
// never ready is that of its creation, see withTransitionTimes.
func firstReady(before, after *echov1.Echo) bool {
	was := meta.FindStatusCondition(before.Status.Conditions, echov1.ConditionReady)
	wasNeverReady := was == nil || was.Status == metav1.ConditionFalse && was.LastTransitionTime.Equal(&before.CreationTimestamp)
	return wasNeverReady && meta.IsStatusConditionTrue(after.Status.Conditions, echov1.ConditionReady)
}

// unrecorded are the reasons of the start of a rollout, of a route or of a verification. The user has
// requested it, so only its result is an event.
var unrecorded = []string{echov1.ReasonRollingOut, echov1.ReasonRouteNotCreated, echov1.ReasonVerifying}

// recordEvent records a change of the condition Ready in an event and in the log or, if Ready does not
// change, of the condition Verified. What has been so for too long becomes a failure with the same reason.
func (r *EchoReconciler) recordEvent(ctx context.Context, before, after *echov1.Echo) {
	isDegraded := meta.IsStatusConditionTrue(after.Status.Conditions, echov1.ConditionDegraded)
	becameDegraded := isDegraded && !meta.IsStatusConditionTrue(before.Status.Conditions, echov1.ConditionDegraded)
	for _, conditionType := range []string{echov1.ConditionReady, echov1.ConditionVerified} {
		was := meta.FindStatusCondition(before.Status.Conditions, conditionType)
		is := meta.FindStatusCondition(after.Status.Conditions, conditionType)
		if is == nil || slices.Contains(unrecorded, is.Reason) {
			continue
		}
		isNew := was == nil || was.Status != is.Status || was.Reason != is.Reason
		isNewFailure := becameDegraded && conditionType == echov1.ConditionReady
		if !isNew && !isNewFailure {
			continue
		}
		eventType := corev1.EventTypeNormal
		if isDegraded || is.Reason == echov1.ReasonVerifierNotRunning {
			eventType = corev1.EventTypeWarning
		}
		r.Recorder.Eventf(after, nil, eventType, is.Reason, "Reconcile", "%s", status.Truncate(is.Message, maxNote))
		log.FromContext(ctx).Info("Echo changed state", "condition", conditionType, "status", is.Status, "reason", is.Reason)
		return
	}
}

package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// writeStatus writes the status if it changed, and records an event and metrics. If the status changes repeatedly, the
// write has to wait: that of a transition for earlier transitions only, so that the progress of many pods does not delay
// their success.
func (rec *reconciliation) writeStatus(ctx context.Context, next echov1.EchoStatus) error {
	if equality.Semantic.DeepEqual(rec.echo.Status, next) {
		return nil
	}
	writes := &rec.memory.progressWrites
	hasSameReason := func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	}
	if !slices.EqualFunc(rec.echo.Status.Conditions, next.Conditions, hasSameReason) {
		writes = &rec.memory.transitionWrites
	}
	if pause := writes.Remaining(); pause > 0 {
		rec.requeue(pause)
		return nil
	}
	updated := rec.echo.DeepCopy()
	updated.Status = next
	if err := rec.Client.Status().Update(ctx, updated); err != nil {
		rec.memory.statusFailed = time.Now()
		return fmt.Errorf("write the status: %w", err)
	}
	rec.versions.Record(echoKind, updated)
	writes.Record(statusBurst, 0)
	rec.recordEvent(ctx, rec.echo, updated)
	if firstReady(rec.echo, updated) {
		rec.Metrics.TimeToReady.Observe(time.Since(rec.echo.CreationTimestamp.Time).Seconds())
	}
	return nil
}

// firstReady reports whether the Echo has become ready for the first time. The transition time of an Echo that was
// never ready is that of its creation.
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

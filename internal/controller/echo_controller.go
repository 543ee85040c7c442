// Package controller reconciles Echoes: it writes the children whose desired state package
// children builds, and the status that package status computes.
package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/metrics"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// +kubebuilder:rbac:groups=kkloud.io,resources=echoes,verbs=get;list;watch
// +kubebuilder:rbac:groups=kkloud.io,resources=echoes/status,verbs=update
// +kubebuilder:rbac:groups=kkloud.io,resources=echoes/finalizers,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

const (
	// A terminal error disappears only after a change elsewhere, for example of a quota, that no
	// watch reports. The operator retries at increasing intervals between these bounds.
	minTerminalErrorRetry = time.Second
	maxTerminalErrorRetry = 30 * time.Second

	// After a write based on a stale snapshot, the operator waits for the cache and retries.
	staleRetry = time.Second

	// Other errors of the API server are retried with exponential back-off between these
	// bounds, so that all Echoes converge within a minute after an outage.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second

	// A reconciliation takes milliseconds. The timeout frees the worker if one hangs.
	reconcileTimeout = time.Minute

	// maxNote is the maximum number of characters of an error in an event or a log line.
	maxNote = 256
)

// EchoReconciler reconciles Echoes.
type EchoReconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server, bypassing the cache.
	APIReader client.Reader
	// Recorder writes events.
	Recorder events.EventRecorder
	// ServerImage is the server image of an Echo that does not set its own.
	ServerImage string
	// MaxConcurrentReconciles is the maximum number of Echoes that are reconciled concurrently.
	MaxConcurrentReconciles int
	// Metrics are the metrics that the reconciler updates.
	Metrics *metrics.Metrics
}

// SetupWithManager registers the reconciler and its watches.
func (r *EchoReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := indexPods(ctx, mgr); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&echov1.Echo{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&echov1.Echo{}, requeueOnStatusChange, builder.WithPredicates(statusChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(echoOfPod), builder.WithPredicates(ignoreInitialList, podFailureChanged)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.MaxConcurrentReconciles,
			ReconciliationTimeout:   reconcileTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		})
	for _, kind := range children.Kinds {
		b.Owns(kind.New(), builder.WithPredicates(ignoreInitialList))
	}
	return b.Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// ignoreInitialList drops the create events of objects that existed before the operator started.
// The operator reconciles every Echo once at its start anyway, and its children with it.
var ignoreInitialList = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
}

// requeueOnStatusChange requeues the Echo when its status changes, including by an external
// client. It also requeues after the operator's own write: a reconciliation that has not seen
// that write yet may have kept a status that it should have changed. The delay limits the rate
// if two operators write different statuses.
var requeueOnStatusChange = handler.Funcs{
	UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}, staleRetry)
	},
}

var statusChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.(*echov1.Echo).Status, e.ObjectNew.(*echov1.Echo).Status)
	},
}

// Reconcile reconciles each child, computes the status from the observed state, and writes the
// status if it changed.
func (r *EchoReconciler) Reconcile(ctx context.Context, echo *echov1.Echo) (ctrl.Result, error) {
	if !echo.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // The garbage collector deletes the children.
	}
	observed, err := r.reconcileChildren(ctx, echo)
	if err != nil {
		return retry(err)
	}
	if err := r.observePods(ctx, echo, &observed); err != nil {
		return retry(err)
	}
	next := withTransitionTimes(status.Of(echo, observed), echo)
	if err := r.writeStatus(ctx, echo, next); err != nil {
		return retry(err)
	}
	if len(observed.Rejected) > 0 {
		return ctrl.Result{RequeueAfter: terminalErrorRetry(next)}, nil
	}
	return ctrl.Result{RequeueAfter: time.Duration(status.Recheck(observed, next)) * time.Second}, nil
}

// reconcileChildren reconciles every child, also after a terminal error of another child.
// Terminal errors become part of the observation. It returns all other errors.
func (r *EchoReconciler) reconcileChildren(ctx context.Context, echo *echov1.Echo) (status.Observation, error) {
	var observed status.Observation
	var failed []error
	for _, c := range children.Kinds {
		object, err := r.reconcileChild(ctx, echo, c)
		if errors.Is(err, errStaleEcho) {
			return observed, err // The other children would be written for the same stale Echo.
		}
		if failure := terminalError(c.Name, err); failure != nil {
			observed.Rejected = append(observed.Rejected, *failure)
		} else if err != nil {
			failed = append(failed, err)
		}
		switch o := object.(type) {
		case *appsv1.Deployment:
			observed.Deployment = o
		case *corev1.Service:
			observed.HasService = true
		}
	}
	return observed, errors.Join(failed...)
}

// terminalError returns the failure to report if an error is terminal: a retry fails in the same
// way until something else in the cluster changes. It returns nil for any other error.
func terminalError(kind string, err error) *status.Failure {
	var notControlled *notControlledError
	var mutated *mutatedByAdmissionError
	switch {
	case errors.As(err, &notControlled):
		return &status.Failure{Reason: echov1.ReasonConflict, Message: err.Error()}
	case errors.As(err, &mutated):
		return &status.Failure{Reason: echov1.ReasonRejected, Message: err.Error()}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err),
		apierrors.IsInternalError(err), apierrors.IsRequestEntityTooLargeError(err):
		return &status.Failure{Reason: echov1.ReasonRejected, Message: kind + ": " + err.Error()}
	default:
		return nil
	}
}

// terminalErrorRetry returns the delay before the next attempt: the time for which the Echo has
// been Degraded, within bounds.
func terminalErrorRetry(rejected echov1.EchoStatus) time.Duration {
	degraded := meta.FindStatusCondition(rejected.Conditions, echov1.ConditionDegraded)
	return min(max(time.Since(degraded.LastTransitionTime.Time), minTerminalErrorRetry), maxTerminalErrorRetry)
}

// retry returns when to retry after an error that is not terminal.
func retry(err error) (ctrl.Result, error) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case errors.Is(err, errStaleEcho), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	default:
		// controller-runtime logs the error, and a webhook may have added user content to it.
		return ctrl.Result{}, errors.New(status.Truncate(err.Error(), maxNote))
	}
}

// withTransitionTimes adds the transition times to the conditions. A new Echo that is not Ready
// has been so since its creation.
func withTransitionTimes(next echov1.EchoStatus, echo *echov1.Echo) echov1.EchoStatus {
	conditions := slices.Clone(echo.Status.Conditions)
	for _, condition := range next.Conditions {
		if len(echo.Status.Conditions) == 0 && condition.Type == echov1.ConditionReady && condition.Status == metav1.ConditionFalse {
			condition.LastTransitionTime = echo.CreationTimestamp
		}
		meta.SetStatusCondition(&conditions, condition)
	}
	next.Conditions = conditions
	return next
}

// writeStatus writes the status if it changed, and records an event and metrics.
func (r *EchoReconciler) writeStatus(ctx context.Context, echo *echov1.Echo, next echov1.EchoStatus) error {
	if equality.Semantic.DeepEqual(echo.Status, next) {
		return nil
	}
	updated := echo.DeepCopy()
	updated.Status = next
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return err
	}
	r.recordEvent(ctx, echo, updated)
	if firstReady(echo, updated) {
		r.Metrics.ObserveTimeToReady(time.Since(echo.CreationTimestamp.Time))
	}
	return nil
}

// firstReady reports whether the Echo has become ready for the first time.
func firstReady(before, after *echov1.Echo) bool {
	was := meta.FindStatusCondition(before.Status.Conditions, echov1.ConditionReady)
	return meta.IsStatusConditionTrue(after.Status.Conditions, echov1.ConditionReady) &&
		(was == nil || was.Status == metav1.ConditionFalse && was.LastTransitionTime.Equal(&before.CreationTimestamp))
}

// recordEvent records a change of the condition Ready in an event and in the log. It does not
// record the start of a rollout, which the user has requested, but its result.
func (r *EchoReconciler) recordEvent(ctx context.Context, before, after *echov1.Echo) {
	was := meta.FindStatusCondition(before.Status.Conditions, echov1.ConditionReady)
	is := meta.FindStatusCondition(after.Status.Conditions, echov1.ConditionReady)
	if is.Reason == echov1.ReasonRollingOut || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	eventType := corev1.EventTypeNormal
	if meta.IsStatusConditionTrue(after.Status.Conditions, echov1.ConditionDegraded) {
		eventType = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(after, nil, eventType, is.Reason, "Reconcile", "%s", status.Truncate(is.Message, maxNote))
	log.FromContext(ctx).Info("Echo changed state", "ready", is.Status, "reason", is.Reason)
}

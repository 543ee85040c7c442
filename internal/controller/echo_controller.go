// Package controller makes every Echo true: it applies the children that package children
// shapes, and writes the status that package status works out.
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
	// A refusal that only a change elsewhere can cure is tried again at a pace that slows
	// down between these bounds, as no watch tells of the change.
	minRefusalRetry = time.Second
	maxRefusalRetry = 30 * time.Second

	// A write that came too late is tried again when the cache has caught up.
	staleRetry = time.Second

	// Failures of the API server are retried at a growing pace within these bounds, so
	// that all is well again within a minute of its return.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second

	// A pass takes milliseconds; one that hangs gives its worker back.
	passTimeout = time.Minute

	// maxNote is the most characters of a refusal or an error that events and the log repeat.
	maxNote = 256
)

// EchoReconciler reconciles Echoes.
type EchoReconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// APIReader reads from the API server, where the cache cannot know.
	APIReader client.Reader
	// Recorder writes events.
	Recorder events.EventRecorder
	// ServerImage is the image of an Echo that names none.
	ServerImage string
	// MaxConcurrentReconciles is the number of Echoes that are reconciled at a time.
	MaxConcurrentReconciles int
	// Metrics count what it does.
	Metrics *metrics.Metrics
}

// SetupWithManager registers the reconciler and what it watches.
func (r *EchoReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := indexPods(ctx, mgr); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&echov1.Echo{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&echov1.Echo{}, lookAgain, builder.WithPredicates(statusChanged)).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(echoOfPod), builder.WithPredicates(sinceStart, podFailureChanged)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.MaxConcurrentReconciles,
			ReconciliationTimeout:   passTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		})
	for _, kind := range children.Kinds {
		b.Owns(kind.New(), builder.WithPredicates(sinceStart))
	}
	return b.Complete(reconcile.AsReconciler(mgr.GetClient(), r))
}

// sinceStart leaves out what was there before the operator: every Echo that was is looked at
// once, and its children with it. To hear of each of them, too, would keep the queue busy.
var sinceStart = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
}

// lookAgain has a status looked at again that somebody has written. It may have been this
// operator: the pass before may not have seen that yet, and have left a status as it was that
// it should have changed. It takes its time, as two operators might disagree.
var lookAgain = handler.Funcs{
	UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}, staleRetry)
	},
}

var statusChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.(*echov1.Echo).Status, e.ObjectNew.(*echov1.Echo).Status)
	},
}

// Reconcile makes one pass: it applies each child, works out the status from what is
// observed, and writes it where it changed.
func (r *EchoReconciler) Reconcile(ctx context.Context, echo *echov1.Echo) (ctrl.Result, error) {
	if !echo.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // The garbage collector removes the children.
	}
	observed, err := r.applyChildren(ctx, echo)
	if err != nil {
		return retry(err)
	}
	if observed.Pods, err = r.podsOf(ctx, echo); err != nil {
		return retry(err)
	}
	next := withTransitionTimes(status.Of(echo, observed), echo)
	if err := r.writeStatus(ctx, echo, next); err != nil {
		return retry(err)
	}
	if len(observed.Refused) > 0 {
		return ctrl.Result{RequeueAfter: refusalRetry(next)}, nil
	}
	return ctrl.Result{}, nil
}

// applyChildren applies every child, also when one of them is refused: a refusal becomes
// part of the observation. It fails where the answer says nothing about the child itself.
func (r *EchoReconciler) applyChildren(ctx context.Context, echo *echov1.Echo) (status.Observation, error) {
	var observed status.Observation
	var failed []error
	for _, c := range children.Kinds {
		object, err := r.apply(ctx, echo, c)
		if errors.Is(err, errStaleEcho) {
			return observed, err // The other children would be written for the same old Echo.
		}
		if failure := refusal(c.Name, err); failure != nil {
			observed.Refused = append(observed.Refused, *failure)
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

// refusal tells whether the error is an answer that stays the same until something else
// changes, and says so in the API server's words. It returns nil for any other error.
func refusal(kind string, err error) *status.Failure {
	var foreign *foreignError
	var overruled *overruledError
	switch {
	case errors.As(err, &foreign):
		return &status.Failure{Reason: echov1.ReasonConflict, Message: err.Error()}
	case errors.As(err, &overruled):
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

// refusalRetry waits as long again as the refusal has lasted, within bounds.
func refusalRetry(refused echov1.EchoStatus) time.Duration {
	degraded := meta.FindStatusCondition(refused.Conditions, echov1.ConditionDegraded)
	return min(max(time.Since(degraded.LastTransitionTime.Time), minRefusalRetry), maxRefusalRetry)
}

// retry decides what becomes of a pass that failed without a refusal.
func retry(err error) (ctrl.Result, error) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case errors.Is(err, errStaleEcho), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	default:
		// It gets into the log, and a webhook may have put into it what the user wrote.
		return ctrl.Result{}, errors.New(status.Shortened(err.Error(), maxNote))
	}
}

// withTransitionTimes completes the conditions with the times of their last change. An Echo
// that is not ready at first has not been so since it was created.
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

// writeStatus writes the status where it changed, and tells of it.
func (r *EchoReconciler) writeStatus(ctx context.Context, echo *echov1.Echo, next echov1.EchoStatus) error {
	if equality.Semantic.DeepEqual(echo.Status, next) {
		return nil
	}
	updated := echo.DeepCopy()
	updated.Status = next
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return err
	}
	r.announce(ctx, echo, updated)
	if readyAtLast(echo, updated) {
		r.Metrics.BecameReady(time.Since(echo.CreationTimestamp.Time))
	}
	return nil
}

// readyAtLast tells whether the Echo has become ready for the first time.
func readyAtLast(before, after *echov1.Echo) bool {
	was := meta.FindStatusCondition(before.Status.Conditions, echov1.ConditionReady)
	return meta.IsStatusConditionTrue(after.Status.Conditions, echov1.ConditionReady) &&
		(was == nil || was.Status == metav1.ConditionFalse && was.LastTransitionTime.Equal(&before.CreationTimestamp))
}

// announce tells of a change of the summary in an event and in the log. That a rollout began
// says nothing new to who asked for it: it is told how it ended.
func (r *EchoReconciler) announce(ctx context.Context, before, after *echov1.Echo) {
	was := meta.FindStatusCondition(before.Status.Conditions, echov1.ConditionReady)
	is := meta.FindStatusCondition(after.Status.Conditions, echov1.ConditionReady)
	if is.Reason == echov1.ReasonRollingOut || was != nil && was.Status == is.Status && was.Reason == is.Reason {
		return
	}
	eventType := corev1.EventTypeNormal
	if meta.IsStatusConditionTrue(after.Status.Conditions, echov1.ConditionDegraded) {
		eventType = corev1.EventTypeWarning
	}
	r.Recorder.Eventf(after, nil, eventType, is.Reason, "Reconcile", "%s", status.Shortened(is.Message, maxNote))
	log.FromContext(ctx).Info("Echo changed state", "ready", is.Status, "reason", is.Reason)
}

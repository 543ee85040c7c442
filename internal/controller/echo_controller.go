// Package controller reconciles Echoes: it writes the children whose desired state package
// children builds, and the status that package status computes.
package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/expectations"
	"github.com/kkloud-io/echo-operator/internal/fairqueue"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/metrics"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// +kubebuilder:rbac:groups=kkloud.io,resources=echoes,verbs=get;list;watch
// +kubebuilder:rbac:groups=kkloud.io,resources=echoes/status,verbs=update
// +kubebuilder:rbac:groups=kkloud.io,resources=echoes/finalizers,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create

const (
	// After a write based on a stale snapshot, an event usually reconciles the Echo again. The retry
	// is for changes that the watch does not report.
	staleRetry = time.Second

	// Other errors of the API server are retried with exponential back-off from this time to backoff.Max, so
	// that all Echoes converge within a minute after an outage.
	minRetry = 100 * time.Millisecond

	// A reconciliation takes milliseconds, but each of its writes may wait for webhooks until the
	// API server gives up after a minute. The timeout frees the worker if a connection hangs.
	reconcileTimeout = 5 * time.Minute

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
	// VerifierImage is the image of verifiers.
	VerifierImage string
	// AllowEveryNodeVerification allows verifiers on every node.
	AllowEveryNodeVerification bool
	// MaxConcurrentReconciles is the maximum number of Echoes that are reconciled concurrently.
	MaxConcurrentReconciles int
	// Namespaces are the namespaces that the operator watches.
	Namespaces *informers.Namespaces
	// Optional is the kind of child that the cluster may not serve.
	Optional *informers.Optional
	// Metrics are the metrics that the reconciler updates.
	Metrics *metrics.Metrics

	// backoff has the pauses before writes that failed, or that were repeated, and what the status reports meanwhile.
	backoff backoff.Backoff[status.Failure]
	// expectations has the writes whose events have not arrived.
	expectations expectations.Store
}

// SetupWithManager registers the reconciler and its watches.
func (r *EchoReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := informers.IndexPods(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.expectations.OwnerOf = echoOf
	if err := mgr.Add(&r.expectations); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		For(&echov1.Echo{}, builder.WithPredicates(r.expectations.Predicate(echoKind))).
		WatchesRawSource(r.expectations.Source()).
		WatchesRawSource(r.Namespaces).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(echoOfPod), builder.WithPredicates(ignoreInitialList, podChanged)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: fairqueue.Workers(r.MaxConcurrentReconciles),
			ReconciliationTimeout:   reconcileTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, backoff.Max),
			NewQueue:                r.newQueue(ctx),
		})
	for _, kind := range children.DifferentObjectKinds() {
		enqueueEcho, notOwnWrite := handler.EnqueueRequestsFromMapFunc(echoOfChild), r.expectations.Predicate(kind.ObjectKind)
		if !kind.OptionalAPI {
			b.Watches(kind.New(), enqueueEcho, builder.WithPredicates(ignoreInitialList, ignoreBudgetStatus, notOwnWrite))
			continue
		}
		events := source.Informer{Handler: enqueueEcho, Predicates: []predicate.Predicate{notOwnWrite}}
		if err := r.Optional.SetupWithManager(mgr, events, r.routedEchoes); err != nil {
			return err
		}
		b.WatchesRawSource(r.Optional)
	}
	return b.Complete(reconcile.Func(r.reconcileRequest))
}

func (r *EchoReconciler) newQueue(ctx context.Context) func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		return fairqueue.New(fairqueue.Options[reconcile.Request]{
			Name: name, RateLimiter: limiter, Seats: r.MaxConcurrentReconciles,
			Namespace: func(request reconcile.Request) string { return request.Namespace },
			Urgent:    func(request reconcile.Request) bool { return r.hasNewSpec(ctx, request.NamespacedName) },
		})
	}
}

// reconcileRequest reconciles the Echo as the cache has it, if that is up to date.
func (r *EchoReconciler) reconcileRequest(ctx context.Context, request reconcile.Request) (ctrl.Result, error) {
	if r.Namespaces.Hold(request) {
		return ctrl.Result{}, nil
	}
	if !r.expectations.Begin(request.NamespacedName) {
		return ctrl.Result{}, nil
	}
	defer r.expectations.End(request.NamespacedName)
	var echo echov1.Echo
	if err := r.Client.Get(ctx, request.NamespacedName, &echo); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return r.Reconcile(ctx, &echo)
}

// Reconcile reconciles each child, computes the status from the observed state, and writes the
// status if it changed.
func (r *EchoReconciler) Reconcile(ctx context.Context, echo *echov1.Echo) (ctrl.Result, error) {
	rec := r.newReconciliation(echo)
	if err := rec.reconcileChildren(ctx); err != nil {
		return retry(err)
	}
	if err := rec.observePods(ctx); err != nil {
		return retry(err)
	}
	next := withTransitionTimes(status.Of(echo, rec.observed), echo)
	paused, err := r.writeStatus(ctx, echo, next)
	if err != nil {
		return retry(err)
	}
	seconds := time.Duration(status.Recheck(echo, rec.observed, next)) * time.Second
	return ctrl.Result{RequeueAfter: earliest(rec.recheck, paused, seconds)}, nil
}

// retry returns when to retry after an error. A rejection of a child is none: the status reports it, and package
// backoff decides when the write is repeated.
//
//	the namespace is being deleted      never
//	the cache lags                      with the next event, or after staleRetry
//	anything else                       at increasing intervals from minRetry to backoff.Max
func retry(err error) (ctrl.Result, error) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case errors.Is(err, errStaleEcho), errors.Is(err, errStaleChild), errors.Is(err, informers.ErrNotYet), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	default:
		// controller-runtime logs the error, and a webhook may have added user content to it.
		return ctrl.Result{}, errors.New(status.Truncate(err.Error(), maxNote))
	}
}

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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/expectations"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/metrics"
	"github.com/kkloud-io/echo-operator/internal/queue"
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
	// MaxConcurrentReconciles is the maximum number of Echoes of a namespace that are reconciled concurrently.
	MaxConcurrentReconciles int
	// Optional is the kind of child that the cluster may not serve.
	Optional *informers.Optional
	// OtherRoutes watches the HTTPRoutes that Echoes override.
	OtherRoutes informers.OtherRoutes
	// Metrics are the metrics that the reconciler updates.
	Metrics *metrics.Metrics

	// memories is what earlier reconciliations of an Echo left.
	memories memories
	// versions holds the operator's own writes that the cache may lack.
	versions expectations.Versions
	seats    queue.Seats
}

// SetupWithManager registers the reconciler and its watches.
func (r *EchoReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := informers.IndexPods(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.OtherRoutes.Cluster = mgr
	r.seats.PerNamespace = r.MaxConcurrentReconciles
	r.seats.TypedRateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minRetry, backoff.Max)
	b := ctrl.NewControllerManagedBy(mgr).
		WatchesRawSource(&r.seats).
		WatchesRawSource(&r.OtherRoutes).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: queue.Namespaces * r.MaxConcurrentReconciles,
			ReconciliationTimeout:   reconcileTimeout,
			RateLimiter:             &r.seats,
		})
	for _, watch := range Watches() {
		enqueue := handler.EnqueueRequestsFromMapFunc(watch.Requests)
		switch watch.Object.(type) {
		case *echov1.Echo:
			b.For(watch.Object, builder.WithPredicates(watch.Predicates...))
		case *gatewayv1.HTTPRoute:
			r.Optional.Events = source.Informer{Handler: enqueue, Predicates: watch.Predicates}
			r.Optional.Users = r.routedEchoes
			b.WatchesRawSource(r.Optional)
		default:
			b.Watches(watch.Object, enqueue, builder.WithPredicates(watch.Predicates...))
		}
	}
	return b.Complete(r.seats.Limit(r, r.isNewOrEdited))
}

// LongestWait returns the longest time that a changed Echo waits for the others of its namespace.
func (r *EchoReconciler) LongestWait() time.Duration { return r.seats.LongestWait() }

// isNewOrEdited reports whether the spec of an Echo has not been reconciled.
func (r *EchoReconciler) isNewOrEdited(ctx context.Context, request reconcile.Request) bool {
	var cached echov1.Echo
	err := r.Client.Get(ctx, request.NamespacedName, &cached, client.UnsafeDisableDeepCopy)
	return err == nil && cached.Status.ObservedGeneration != cached.Generation
}

// Reconcile reconciles the Echo as the cache has it, if that is up to date.
func (r *EchoReconciler) Reconcile(ctx context.Context, request reconcile.Request) (ctrl.Result, error) {
	var echo echov1.Echo
	if err := r.Client.Get(ctx, request.NamespacedName, &echo); err != nil {
		r.OtherRoutes.Follow(request.NamespacedName, nil) //nolint:contextcheck // The watches outlive the reconciliation.
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.versions.IsStale(echoKind, request.NamespacedName, &echo) {
		return retry(errStaleEcho)
	}
	return r.reconcileEcho(ctx, &echo)
}

// reconciliation is one reconciliation of an Echo.
type reconciliation struct {
	*EchoReconciler
	echo   *echov1.Echo
	memory *memory
	inputs children.Inputs
	// readOnly is true if no child is written: the garbage collector deletes them, or a write took long and failed.
	// The status reports that failure before the next write, which may take long, too.
	readOnly bool

	// missingRoutes is why the cache does not contain HTTPRoutes, or nil.
	missingRoutes error
	// unresolved is why the Echo cannot override the HTTPRoutes that it declares, or nil.
	unresolved *status.Failure
	// stillOverrides is true if the Echo's HTTPRoute overrides the HTTPRoutes that the Echo declares, perhaps as they were.
	stillOverrides bool
	// followed identifies the objects on which children depend: the overridden HTTPRoutes, with their generations, the
	// Echo's own, and its ready pods; or that the Service keeps a port. Otherwise, it is empty.
	followed string
	// observed is what the status depends on.
	observed status.Observation
	// requeueAfter is when to reconcile again without an event. 0 means that events suffice.
	requeueAfter time.Duration
}

func (r *EchoReconciler) newReconciliation(echo *echov1.Echo) *reconciliation {
	isDeleted := !echo.DeletionTimestamp.IsZero()
	return &reconciliation{
		EchoReconciler: r, echo: echo, memory: r.memories.forGeneration(echo), readOnly: isDeleted,
		inputs: children.Inputs{ServerImage: r.ServerImage, VerifierImage: r.VerifierImage},
	}
}

// requeue reconciles the Echo again after some time, or earlier. 0 means that events suffice.
func (rec *reconciliation) requeue(after time.Duration) {
	if after > 0 && (rec.requeueAfter == 0 || after < rec.requeueAfter) {
		rec.requeueAfter = after
	}
}

// reconcileEcho reconciles each child, computes the status from the observed state, and writes the
// status if it changed.
func (r *EchoReconciler) reconcileEcho(ctx context.Context, echo *echov1.Echo) (ctrl.Result, error) {
	rec := r.newReconciliation(echo)
	if err := rec.readRoutes(ctx); err != nil {
		return retry(err)
	}
	if err := rec.reconcileChildren(ctx); err != nil {
		return retry(err)
	}
	rec.memory.followed = rec.followed
	if err := rec.observePods(ctx); err != nil {
		return retry(err)
	}
	rec.observed.ExternalURL = children.ExternalURL(echo, rec.inputs)
	assessment := status.Assess(echo, rec.observed)
	if assessment.WaitsForRoom() && !rec.readOnly {
		rec.retryPods(ctx)
	}
	if assessment.NeedsNewestReplicaSet() {
		newest, err := r.newestReplicaSet(ctx, rec.observed.Deployment)
		if err != nil {
			return retry(err)
		}
		assessment.NewestReplicaSet = newest
	}
	next, outdatedAfter := assessment.Status()
	rec.requeue(outdatedAfter)
	if err := rec.writeStatus(ctx, next); err != nil {
		return retry(err)
	}
	return ctrl.Result{RequeueAfter: rec.requeueAfter}, nil
}

// retry returns when to retry after an error. It does not see rejections of children: the status reports them, and the
// memory of the Echo decides when the write is repeated.
//
//	the namespace is being deleted      never
//	the cache lags                      with the next event, or after staleRetry
//	anything else                       at increasing intervals from minRetry to backoff.Max
func retry(err error) (ctrl.Result, error) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case isStale(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	default:
		// controller-runtime logs the error, and a webhook may have added user content to it.
		return ctrl.Result{}, errors.New(status.Truncate(err.Error(), maxNote))
	}
}

// isStale reports whether an error means that the cache lags behind the API server, or no longer contains HTTPRoutes.
func isStale(err error) bool {
	return errors.As(err, new(*cache.ErrResourceNotCached)) || errors.Is(err, errStaleEcho) || errors.Is(err, errStaleChild) || errors.Is(err, informers.ErrNotYet) ||
		apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

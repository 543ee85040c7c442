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
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
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

	// statusDelay is how soon the operator writes a child that depends on the status it has just written.
	statusDelay = 100 * time.Millisecond

	// Other errors of the API server are retried with exponential back-off between these
	// bounds, so that all Echoes converge within a minute after an outage.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 30 * time.Second

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
	// Optional is the kind of child that the cluster may not serve.
	Optional *informers.Optional
	// Metrics are the metrics that the reconciler updates.
	Metrics *metrics.Metrics

	slots *slots
	pace  pace
	// ownWrites has the writes that the cache does not contain yet.
	ownWrites ownWrites
	// verifiers has the verifiers in the cache.
	verifiers verifiers
}

// SetupWithManager registers the reconciler and its watches.
func (r *EchoReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := informers.IndexPods(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r.slots = newSlots(r.MaxConcurrentReconciles)
	b := ctrl.NewControllerManagedBy(mgr).
		For(&echov1.Echo{}, builder.WithPredicates(r.ownWrites.news(echoKind))).
		WatchesRawSource(r.ownWrites.source()).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(echoOfPod), builder.WithPredicates(ignoreInitialList, podFailureChanged)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: r.MaxConcurrentReconciles + maxSlow,
			ReconciliationTimeout:   reconcileTimeout,
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff),
		})
	for _, kind := range children.DifferentObjectKinds() {
		enqueueEcho, news := handler.EnqueueRequestsFromMapFunc(echoOfChild), r.ownWrites.news(kind.ObjectKind)
		if kind.OptionalAPI {
			events := source.Informer{Handler: enqueueEcho, Predicates: []predicate.Predicate{news}}
			if err := r.Optional.SetupWithManager(mgr, events, r.routedEchoes); err != nil {
				return err
			}
			b.WatchesRawSource(r.Optional)
			continue
		}
		b.Watches(kind.New(), enqueueEcho, builder.WithPredicates(r.verifiers.observe(kind.ObjectKind), ignoreInitialList, ignoreBudgetStatus, news))
	}
	if err := mgr.Add(&r.ownWrites); err != nil {
		return err
	}
	return b.Complete(reconcile.Func(r.reconcileRequest))
}

// ignoreInitialList drops the create events of objects that existed before the operator started.
// The operator reconciles every Echo once at its start anyway, and its children with it.
var ignoreInitialList = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
}

// ignoreBudgetStatus drops the events of changes of a PodDisruptionBudget's status, which every start of
// a pod causes. The cache does not contain that status.
var ignoreBudgetStatus = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		old, is := e.ObjectOld.(*policyv1.PodDisruptionBudget)
		if !is || informers.IsStub(e.ObjectNew) {
			return true
		}
		before := old.DeepCopy()
		before.ResourceVersion = e.ObjectNew.GetResourceVersion()
		return !equality.Semantic.DeepEqual(before, e.ObjectNew)
	},
}

// reconcileRequest reconciles the Echo as the cache has it, if that is up to date.
func (r *EchoReconciler) reconcileRequest(ctx context.Context, request reconcile.Request) (ctrl.Result, error) {
	slot, entered := r.slots.enter(ctx, r.lineOf(ctx, request.NamespacedName))
	if !entered {
		return ctrl.Result{RequeueAfter: wait.Jitter(saturatedRetry, 1)}, nil
	}
	defer slot.leave()
	if !r.ownWrites.begin(request.NamespacedName) {
		return ctrl.Result{}, nil
	}
	defer r.ownWrites.end(request.NamespacedName)
	var echo echov1.Echo
	if err := r.Client.Get(ctx, request.NamespacedName, &echo); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return r.Reconcile(context.WithValue(ctx, slotKey{}, slot), &echo)
}

// lineOf returns the line where a reconciliation of the Echo waits for a slot.
func (r *EchoReconciler) lineOf(ctx context.Context, name types.NamespacedName) line {
	var echo echov1.Echo
	err := r.Client.Get(ctx, name, &echo)
	return line{namespace: name.Namespace, newSpec: err == nil && echo.Status.ObservedGeneration != echo.Generation}
}

// Reconcile reconciles each child, computes the status from the observed state, and writes the
// status if it changed.
func (r *EchoReconciler) Reconcile(ctx context.Context, echo *echov1.Echo) (ctrl.Result, error) {
	observed, recheck, err := r.reconcileChildren(ctx, echo)
	if err != nil {
		return retry(err)
	}
	if err := r.observePods(ctx, echo, &observed); err != nil {
		return retry(err)
	}
	noted, err := r.noteRootImage(ctx, echo, &observed)
	if err != nil {
		return retry(err)
	}
	next := withTransitionTimes(status.Of(echo, observed), echo)
	paused, err := r.writeStatus(ctx, echo, next)
	if err != nil {
		return retry(err)
	}
	var outdated time.Duration
	if paused == 0 && children.DependsOnStatus(observed.Service, echo, next) {
		outdated = statusDelay
	}
	seconds := time.Duration(status.Recheck(echo, observed, next)) * time.Second
	return ctrl.Result{RequeueAfter: earliest(recheck, noted, paused, outdated, seconds)}, nil
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

// reconcileChildren reconciles every child, also after the rejection of another child. Rejections
// become part of the observation. It returns all other errors, and when to reconcile again.
func (r *EchoReconciler) reconcileChildren(ctx context.Context, echo *echov1.Echo) (observed status.Observation, recheck time.Duration, err error) {
	var failed []error
	in := children.Inputs{ServerImage: r.ServerImage, VerifierImage: r.VerifierImage}
	reconcile := r.reconcileChild
	if !echo.DeletionTimestamp.IsZero() {
		reconcile = r.observeChild // The garbage collector deletes the children.
	}
	for _, c := range children.Kinds {
		do := reconcile
		switch {
		case c.OptionalAPI:
			do = r.ifServed(reconcile)
		case c.Verifier && !r.wants(echo, c) && !r.verifiers.has(echo, c):
			do = noChild
		case c.Verifier && r.wants(echo, c) && !canVerify(echo, observed, in):
			do = r.observeOutdated
		}
		result, err := do(ctx, echo, c, in)
		if errors.Is(err, errStaleEcho) {
			return observed, 0, err // The other children would be written for the same stale Echo.
		}
		if err != nil {
			failed = append(failed, err)
		}
		r.observe(&observed, echo, c, result)
		if service, is := result.object.(*corev1.Service); is {
			in.ClusterIPs = service.Spec.ClusterIPs
			if left := time.Until(r.pace.last(serviceChange(echo)).Add(serviceLag)); left > 0 {
				observed.Waiting = append(observed.Waiting, "Service: the nodes apply the change")
				recheck = earliest(recheck, left)
			}
		}
		recheck = earliest(recheck, result.recheck)
		if result.slow { // The status reports the failure before the next write, which may be slow, too.
			reconcile, recheck = r.observeChild, minPace
		}
	}
	return observed, recheck, errors.Join(failed...)
}

// serviceLag is how long a node may take to apply a change of the Service: kube-proxy collects changes for a second.
const serviceLag = 2 * time.Second

// observe adds the result for one kind of child to the observation.
func (r *EchoReconciler) observe(observed *status.Observation, echo *echov1.Echo, c children.Kind, result child) {
	if result.failure != nil {
		observed.Rejected = append(observed.Rejected, *result.failure)
	}
	if result.overridden != nil {
		observed.Overridden = append(observed.Overridden, *result.overridden)
	}
	if result.waiting != "" {
		observed.Waiting = append(observed.Waiting, result.waiting)
	}
	if c.Verifier {
		r.observeVerifier(observed, echo, c, result)
		return
	}
	switch o := result.object.(type) {
	case *appsv1.Deployment:
		observed.Deployment = o
	case *corev1.Service:
		observed.Service = o
	}
	if c.OptionalAPI {
		observed.Route = routeOf(echo, result)
	}
}

// observeChild returns the child as the cache has it.
func (r *EchoReconciler) observeChild(ctx context.Context, echo *echov1.Echo, c children.Kind, _ children.Inputs) (child, error) {
	object := client.Object(c.New())
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: echo.Namespace, Name: c.ChildName(echo)}, object)
	if err != nil || !metav1.IsControlledBy(object, echo) || object.GetDeletionTimestamp() != nil {
		return child{}, client.IgnoreNotFound(err)
	}
	return child{object: object}, nil
}

// noteRootImage has the Deployment set a user ID, if the kubelet reports that the image would run
// as root. It returns when to reconcile again.
func (r *EchoReconciler) noteRootImage(ctx context.Context, echo *echov1.Echo, observed *status.Observation) (recheck time.Duration, err error) {
	if observed.Deployment == nil || !status.NeedsRootImageNote(observed.Pods, observed.NewestReplicaSet) {
		return 0, nil
	}
	desired := observed.Deployment.DeepCopy()
	if !children.NoteRootImage(desired) {
		return 0, nil
	}
	children.Deployment(desired, echo, r.ServerImage)
	i := slices.IndexFunc(children.Kinds, func(c children.Kind) bool { return c.ObjectKind == "Deployment" && !c.Verifier })
	c := children.Kinds[i]
	result, err := r.patch(ctx, echo, c, children.Inputs{ServerImage: r.ServerImage}, observed.Deployment, desired)
	if err != nil {
		return 0, err
	}
	observed.Overridden = slices.DeleteFunc(observed.Overridden, func(o echov1.OverriddenChild) bool { return o.Kind == c.Name })
	r.observe(observed, echo, c, result)
	return result.recheck, nil
}

// retry returns when to retry after an error that is not terminal.
func retry(err error) (ctrl.Result, error) {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ctrl.Result{}, nil
	case err == nil:
		return ctrl.Result{}, nil
	case errors.Is(err, errStaleEcho), errors.Is(err, errStaleChild), errors.Is(err, informers.ErrNotYet), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	default:
		// controller-runtime logs the error, and a webhook may have added user content to it.
		return ctrl.Result{}, errors.New(status.Truncate(err.Error(), maxNote))
	}
}

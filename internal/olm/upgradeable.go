// Package olm delays upgrades by Operator Lifecycle Manager (OLM) while a rollout is in flight. OLM reads
// the condition Upgradeable of the operator's OperatorCondition, but it does not let the operator watch
// that object. So the package writes the condition when it changes, and checks it only while it delays an
// upgrade.
package olm

import (
	"context"
	"fmt"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/source"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// checkPeriod is how often the OperatorCondition is read while it delays an upgrade: another client
	// may have deleted or changed it. While nothing rolls out, it is not read.
	checkPeriod = time.Minute

	// A failure is retried at intervals between these bounds. OLM creates the OperatorCondition and grants
	// the permission about when it starts the operator. Without OLM, there is none.
	minBackoff = time.Second
	maxBackoff = 5 * time.Minute
)

// UpgradeableReconciler writes the condition Upgradeable of the operator's OperatorCondition. It
// is False while a rollout is in flight, which makes OLM delay an upgrade. OLM creates the
// OperatorCondition and grants permission to write it.
type UpgradeableReconciler struct {
	// Condition is the namespace and name of the OperatorCondition.
	Condition client.ObjectKey
	// RolloutInFlight reports whether the status describes a rollout that is expected to complete.
	RolloutInFlight func(echov1.EchoStatus) bool

	// echoes reads from the cache.
	echoes client.Reader
	// live has no cache, because OLM does not grant permission to watch.
	live client.Client
	// reported is the status that the OperatorCondition had when it was last read or written, at the
	// time checked. It is empty at first.
	reported metav1.ConditionStatus
	checked  time.Time
}

// echoesByRollout is the name of the cache index of Echoes whose rollout is in flight.
const (
	echoesByRollout = "rollout"
	inFlight        = "in flight"
)

// SetupWithManager registers the reconciler and its watches.
func (r *UpgradeableReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &echov1.Echo{}, echoesByRollout, r.indexByRollout); err != nil {
		return fmt.Errorf("index Echoes by rollout: %w", err)
	}
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	r.echoes, r.live = mgr.GetClient(), live
	// Every event enqueues the OperatorCondition. The start does, too: there may be no Echo.
	request := reconcile.Request{NamespacedName: r.Condition}
	return ctrl.NewControllerManagedBy(mgr).
		Named("upgradeable").
		Watches(&echov1.Echo{}, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{request}
		}), builder.WithPredicates(r.rolloutChanged())).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(request)
			return nil
		})).
		WithOptions(controller.Options{RateLimiter: newBackoff()}).
		Complete(r)
}

func newBackoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff)
}

// Reconcile writes the condition if it changed.
func (r *UpgradeableReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (ctrl.Result, error) {
	var echoes echov1.EchoList
	if err := r.echoes.List(ctx, &echoes, client.MatchingFields{echoesByRollout: inFlight}, client.Limit(1)); err != nil {
		return ctrl.Result{}, err
	}
	desired := metav1.Condition{
		Type: operatorsv2.Upgradeable, Status: metav1.ConditionTrue, Reason: echov1.ReasonRolledOut, Message: "No Echo is rolling out",
	}
	delaysUpgrade := len(echoes.Items) > 0
	if delaysUpgrade {
		desired.Status, desired.Reason = metav1.ConditionFalse, echov1.ReasonRollingOut
		desired.Message = "Echo " + client.ObjectKeyFromObject(&echoes.Items[0]).String() + " is rolling out"
	}
	checkIn := time.Until(r.checked.Add(checkPeriod))
	if r.reported != desired.Status || delaysUpgrade && checkIn <= 0 {
		if err := r.report(ctx, desired); err != nil {
			return ctrl.Result{}, err
		}
		checkIn = checkPeriod
	}
	if !delaysUpgrade {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: checkIn}, nil
}

// report writes the condition if the OperatorCondition differs.
func (r *UpgradeableReconciler) report(ctx context.Context, desired metav1.Condition) error {
	var condition operatorsv2.OperatorCondition
	if err := r.live.Get(ctx, r.Condition, &condition); err != nil {
		return err
	}
	// A patch keeps fields that this client does not know.
	patch := client.MergeFromWithOptions(condition.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if meta.SetStatusCondition(&condition.Spec.Conditions, desired) {
		if err := r.live.Patch(ctx, &condition, patch); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Updated OperatorCondition", "upgradeable", desired.Status)
	}
	r.reported, r.checked = desired.Status, time.Now()
	return nil
}

func (r *UpgradeableReconciler) indexByRollout(echo client.Object) []string {
	if r.inFlight(echo) {
		return []string{inFlight}
	}
	return nil
}

func (r *UpgradeableReconciler) inFlight(echo client.Object) bool {
	return r.RolloutInFlight(echo.(*echov1.Echo).Status)
}

// rolloutChanged passes the events that start or end a rollout.
func (r *UpgradeableReconciler) rolloutChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return r.inFlight(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return r.inFlight(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return r.inFlight(e.ObjectOld) != r.inFlight(e.ObjectNew) },
	}
}

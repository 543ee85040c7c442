package controller

import (
	"context"
	"fmt"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// UpgradeableReconciler writes the condition Upgradeable of the operator's OperatorCondition. It
// is False while a rollout is in flight, which makes Operator Lifecycle Manager (OLM) delay an
// upgrade. OLM creates the OperatorCondition and grants permission to write it.
type UpgradeableReconciler struct {
	// Condition is the namespace and name of the OperatorCondition.
	Condition client.ObjectKey

	echoes client.Reader
	// live has no cache, because OLM does not grant permission to watch.
	live client.Client
	// reported is the last status that Reconcile read or wrote. It remains accurate, because the
	// operator is the only writer. It is empty at first.
	reported metav1.ConditionStatus
}

// Reasons of the condition Upgradeable.
const (
	reasonRollingOut = "RollingOut"
	reasonRolledOut  = "RolledOut"
)

// echoesByRollout is the name of the cache index of Echoes whose rollout is in flight.
const (
	echoesByRollout = "rollout"
	inFlight        = "in flight"
)

// SetupWithManager registers the reconciler and its watches.
func (r *UpgradeableReconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &echov1.Echo{}, echoesByRollout, func(echo client.Object) []string {
		if rolloutInFlight(echo) {
			return []string{inFlight}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("index Echoes by rollout: %w", err)
	}
	r.echoes = mgr.GetClient()
	if r.live, err = client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient()}); err != nil {
		return err
	}
	// Every event enqueues the OperatorCondition. The start does, too: there may be no Echo.
	request := reconcile.Request{NamespacedName: r.Condition}
	return ctrl.NewControllerManagedBy(mgr).
		Named("upgradeable").
		Watches(&echov1.Echo{}, handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{request}
		}), builder.WithPredicates(rolloutChanged)).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(request)
			return nil
		})).
		Complete(r)
}

// Reconcile writes the condition if it changed.
func (r *UpgradeableReconciler) Reconcile(ctx context.Context, _ reconcile.Request) (ctrl.Result, error) {
	var echoes echov1.EchoList
	if err := r.echoes.List(ctx, &echoes, client.MatchingFields{echoesByRollout: inFlight}, client.Limit(1)); err != nil {
		return ctrl.Result{}, err
	}
	desired := upgradeable(echoes.Items)
	if r.reported == desired.Status {
		return ctrl.Result{}, nil
	}
	var condition operatorsv2.OperatorCondition
	if err := r.live.Get(ctx, r.Condition, &condition); err != nil {
		return retry(err)
	}
	// A patch keeps fields that this client does not know.
	patch := client.MergeFromWithOptions(condition.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if meta.SetStatusCondition(&condition.Spec.Conditions, desired) {
		if err := r.live.Patch(ctx, &condition, patch); err != nil {
			return retry(err)
		}
		log.FromContext(ctx).Info("Updated OperatorCondition", "upgradeable", desired.Status)
	}
	r.reported = desired.Status
	return ctrl.Result{}, nil
}

// upgradeable returns the condition for the rollouts that are in flight.
func upgradeable(rollouts []echov1.Echo) metav1.Condition {
	if len(rollouts) > 0 {
		return metav1.Condition{
			Type: operatorsv2.Upgradeable, Status: metav1.ConditionFalse, Reason: reasonRollingOut,
			Message: "Echo " + client.ObjectKeyFromObject(&rollouts[0]).String() + " is rolling out",
		}
	}
	return metav1.Condition{
		Type: operatorsv2.Upgradeable, Status: metav1.ConditionTrue, Reason: reasonRolledOut,
		Message: "No Echo is rolling out",
	}
}

func rolloutInFlight(echo client.Object) bool {
	return status.RolloutInFlight(echo.(*echov1.Echo).Status)
}

var rolloutChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return rolloutInFlight(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool { return rolloutInFlight(e.Object) },
	UpdateFunc: func(e event.UpdateEvent) bool { return rolloutInFlight(e.ObjectOld) != rolloutInFlight(e.ObjectNew) },
}

package controller

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// reconcileFunc reconciles or observes one child.
type reconcileFunc func(context.Context, *echov1.Echo, children.Kind, children.Inputs) (child, error)

// ifServed returns a function that reconciles a child of the optional kind if the cache contains the kind.
func (r *EchoReconciler) ifServed(reconcile reconcileFunc) reconcileFunc {
	return func(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs) (child, error) {
		missing := r.Optional.Check()
		isNotServed := errors.Is(missing, informers.ErrNotServed)
		hasNone := !c.Wanted(echo) && (isNotServed || !isRouted(echo))
		switch {
		case missing == nil:
			return reconcile(ctx, echo, c, in)
		case hasNone:
			return child{}, nil // If there is one, it reconciles the Echo when the cache contains the kind.
		case isNotServed:
			return child{notServed: true, recheck: r.Optional.Period}, nil
		case errors.Is(missing, informers.ErrNotYet):
			return child{}, missing
		default:
			failure := &status.Failure{Reason: echov1.ReasonRejected, Message: c.Name + ": " + missing.Error()}
			return child{failure: failure, recheck: maxPace}, nil
		}
	}
}

// isRouted reports whether the status reports about an HTTPRoute.
func isRouted(echo *echov1.Echo) bool {
	return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted) != nil
}

// routedEchoes returns the Echoes whose status depends on the optional kind.
func (r *EchoReconciler) routedEchoes(ctx context.Context) (requests []reconcile.Request) {
	var echoes echov1.EchoList
	if err := r.Client.List(ctx, &echoes, client.UnsafeDisableDeepCopy); err != nil {
		return nil // Only before the first sync of the cache, or at the end of the manager.
	}
	for i := range echoes.Items {
		if echo := &echoes.Items[i]; echo.Spec.Route != nil || isRouted(echo) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(echo)})
		}
	}
	return requests
}

// routeOf returns what the status reports about the HTTPRoute, or nil if the Echo neither wants nor
// has one.
func routeOf(echo *echov1.Echo, result child) *status.Route {
	if !children.WantsHTTPRoute(echo) && result.failure == nil {
		return nil
	}
	object, _ := result.object.(*gatewayv1.HTTPRoute)
	return &status.Route{Object: object, Failure: result.failure, NotInstalled: result.notServed}
}

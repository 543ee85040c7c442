package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// isNoted reports whether the status notes that the Echo may have an HTTPRoute. The operator notes
// that before it creates the HTTPRoute. So after a restart, it finds the HTTPRoutes of Echoes whose
// route was removed meanwhile, without reading HTTPRoutes for every Echo.
func isNoted(echo *echov1.Echo) bool {
	return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted) != nil
}

// mayExist reports whether the HTTPRoute may have existed when the status was written.
func mayExist(echo *echov1.Echo) bool {
	routed := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted)
	return routed != nil && routed.Reason != echov1.ReasonRouteNotCreated && routed.Reason != echov1.ReasonGatewayAPINotInstalled
}

// reconcileFunc reconciles or observes one child.
type reconcileFunc func(context.Context, *echov1.Echo, children.Kind, children.Inputs) (child, error)

// ifServed returns a function that reconciles a child of an optional kind if the cluster serves it.
func (r *EchoReconciler) ifServed(reconcile reconcileFunc) reconcileFunc {
	return func(ctx context.Context, echo *echov1.Echo, c children.Kind, in children.Inputs) (child, error) {
		wanted, noted := c.Wanted(echo), isNoted(echo)
		if !wanted && !noted {
			// A leader that lost its lease may have created the child late. Its event arrived here.
			if api := r.optional[c.Name]; api == nil || !api.synced() {
				return child{}, nil
			}
			return reconcile(ctx, echo, c, in)
		}
		watched, instead, err := r.optional[c.Name].access(ctx)
		switch {
		case err != nil || !watched:
			return instead, err
		case wanted && !noted && echo.DeletionTimestamp.IsZero():
			return child{recheck: statusDelay}, nil
		default:
			return reconcile(ctx, echo, c, in)
		}
	}
}

// routeOf returns what the status reports about the HTTPRoute, or nil if the Echo neither wants nor
// has one.
func routeOf(echo *echov1.Echo, result child) *status.Route {
	if !children.WantsHTTPRoute(echo) && result.failure == nil && (result.recheck == 0 || result.notServed) {
		return nil
	}
	object, _ := result.object.(*gatewayv1.HTTPRoute)
	return &status.Route{Object: object, Failure: result.failure, NotInstalled: result.notServed}
}

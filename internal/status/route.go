package status

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// Route is what a reconciliation observed about the HTTPRoute of an Echo.
type Route struct {
	// Object as the API server last returned it. It is nil while the Echo controls none.
	Object *gatewayv1.HTTPRoute
	// Failure is the failure of the HTTPRoute in Observation.Rejected, or nil.
	Failure *Failure
	// NotInstalled is true if the cluster does not serve HTTPRoutes.
	NotInstalled bool
	// Waiting is what the HTTPRoute waits for, without a failure.
	Waiting string
}

// maxParentMessage is the maximum number of characters of the message of one parent, so that a
// condition has room for those of all parents.
const maxParentMessage = 400

// routedCondition returns the condition Routed.
func routedCondition(echo *echov1.Echo, observed Observation) metav1.Condition {
	route := *observed.Route
	switch {
	case route.NotInstalled:
		return condition(echov1.ConditionRouted, metav1.ConditionFalse, echov1.ReasonGatewayAPINotInstalled,
			"The cluster does not serve HTTPRoute in gateway.networking.k8s.io/v1: install the CRDs of the Gateway API")
	case route.Failure != nil:
		return condition(echov1.ConditionRouted, metav1.ConditionFalse, route.Failure.Reason, "%s", route.Failure.Message)
	case route.Object == nil || echo.Spec.Route == nil:
		message := cmp.Or(route.Waiting, fmt.Sprintf("HTTPRoute %s does not exist", children.Name(echo)))
		if routeDeadlineLeft(echo, observed) == 0 || previousRouted(echo, echov1.ReasonProgressDeadlineExceeded) {
			return condition(echov1.ConditionRouted, metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded, "%s", message)
		}
		return condition(echov1.ConditionRouted, metav1.ConditionUnknown, echov1.ReasonRouteNotCreated, "%s", message)
	}
	var rejected, pending []string
	var reason string
	for _, ref := range children.ParentRefs(echo.Spec.Route) {
		accepted, rejection := parentStatusOf(ref, route.Object)
		switch {
		case rejection != nil:
			reason = cmp.Or(reason, parentReason(rejection.Reason))
			rejected = append(rejected, fmt.Sprintf("%s: %s: %s", parentName(ref, echo.Namespace),
				parentReason(rejection.Reason), Truncate(rejection.Message, maxParentMessage)))
		case !accepted:
			pending = append(pending, parentName(ref, echo.Namespace))
		}
	}
	switch {
	case len(rejected) > 0:
		return condition(echov1.ConditionRouted, metav1.ConditionFalse, reason, "%s", strings.Join(rejected, "; "))
	case len(pending) > 0:
		return condition(echov1.ConditionRouted, metav1.ConditionUnknown, echov1.ReasonRouteNotReconciled,
			"The newest HTTPRoute %s has no status from %s", children.Name(echo), strings.Join(pending, ", "))
	default:
		return condition(echov1.ConditionRouted, metav1.ConditionTrue, echov1.ReasonAccepted, "Every Gateway accepted the route")
	}
}

// parentStatusOf returns what a parent reports for the current generation of the route. Several controllers
// may report for one parent. A rejection by any of them counts, and a status of an earlier generation does not.
func parentStatusOf(ref gatewayv1.ParentReference, route *gatewayv1.HTTPRoute) (accepted bool, rejection *metav1.Condition) {
	for _, parent := range route.Status.Parents {
		if !sameParent(parent.ParentRef, ref, route.Namespace) {
			continue
		}
		trueConditions := 0
		for _, conditionType := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
			c := meta.FindStatusCondition(parent.Conditions, string(conditionType))
			switch {
			case c == nil || c.ObservedGeneration != route.Generation:
			case c.Status == metav1.ConditionFalse:
				return false, c
			case c.Status == metav1.ConditionTrue:
				trueConditions++
			}
		}
		accepted = accepted || trueConditions == 2
	}
	return accepted, nil
}

// sameParent reports whether two references of a route in the namespace are equal. Fields that are
// not set have the default of the Gateway API.
func sameParent(a, b gatewayv1.ParentReference, namespace string) bool {
	return ptr.Deref(a.Group, gatewayv1.GroupName) == ptr.Deref(b.Group, gatewayv1.GroupName) &&
		ptr.Deref(a.Kind, "Gateway") == ptr.Deref(b.Kind, "Gateway") &&
		ptr.Deref(a.Namespace, gatewayv1.Namespace(namespace)) == ptr.Deref(b.Namespace, gatewayv1.Namespace(namespace)) &&
		a.Name == b.Name && ptr.Deref(a.SectionName, "") == ptr.Deref(b.SectionName, "") && ptr.Deref(a.Port, 0) == ptr.Deref(b.Port, 0)
}

// parentName names a Gateway, for example "Gateway infra/public, listener https, port 8443".
func parentName(ref gatewayv1.ParentReference, namespace string) string {
	name := fmt.Sprintf("Gateway %s/%s", ptr.Deref(ref.Namespace, gatewayv1.Namespace(namespace)), ref.Name)
	if ref.SectionName != nil {
		name += fmt.Sprintf(", listener %s", *ref.SectionName)
	}
	if ref.Port != nil {
		name += fmt.Sprintf(", port %d", *ref.Port)
	}
	return name
}

// parentReasons matches the reasons of parents that the condition Routed repeats.
var parentReasons = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,63}$`)

// parentReason returns the reason of a parent, which is text of a third party.
func parentReason(reason string) string {
	if parentReasons.MatchString(reason) {
		return reason
	}
	return echov1.ReasonRouteRejected
}

// previousRouted reports whether the Echo's condition Routed has the reason for the current generation.
func previousRouted(echo *echov1.Echo, reason string) bool {
	c := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionRouted)
	return c != nil && c.ObservedGeneration == echo.Generation && c.Reason == reason
}

// routeFailure returns the failure that the condition Routed reports, or nil.
func routeFailure(echo *echov1.Echo, observed Observation, routed *metav1.Condition) *Failure {
	isOverdue := routed != nil && routed.Status == metav1.ConditionUnknown && routeDeadlineLeft(echo, observed) == 0
	switch {
	case routed == nil || routed.Status != metav1.ConditionFalse && !isOverdue:
		return nil
	case isOverdue, slices.Contains([]string{echov1.ReasonGatewayAPINotInstalled, echov1.ReasonProgressDeadlineExceeded}, routed.Reason):
		return &Failure{Reason: routed.Reason, Message: routed.Message}
	default:
		return &Failure{Reason: echov1.ReasonRouteRejected, Message: routed.Message}
	}
}

// routeRecheck returns the number of seconds until a route without a response is a failure, or 0.
func routeRecheck(echo *echov1.Echo, observed Observation, status echov1.EchoStatus) int64 {
	routed := meta.FindStatusCondition(status.Conditions, echov1.ConditionRouted)
	if routed == nil || routed.Status != metav1.ConditionUnknown {
		return 0
	}
	return routeDeadlineLeft(echo, observed)
}

// routeDeadlineLeft returns how many seconds are left for a route that does not exist, or that nobody responds.
func routeDeadlineLeft(echo *echov1.Echo, observed Observation) int64 {
	return observed.left(unknownSince(echo, echov1.ConditionRouted, observed.Now))
}

package status

import (
	"cmp"
	"fmt"
	"strings"
	"time"

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
	// Waiting is what the HTTPRoute waits for, without a failure.
	Waiting string
	// ParentRefs are the references of the HTTPRoute to its Gateways.
	ParentRefs []gatewayv1.ParentReference
	// Unresolved is why there is no desired state, or nil: ReasonGatewayAPINotInstalled, ReasonRouteNotFound or ReasonRouteNotOverridable.
	Unresolved *Failure
}

// maxParentMessage is the maximum number of characters of the message of one parent, so that a
// condition has room for those of all parents.
const maxParentMessage = 400

// route returns the condition Routed.
func (a *Assessment) route() verdict {
	if a.Route == nil {
		return verdict{}
	}
	route, end := *a.Route, a.unknownSince(echov1.ConditionRouted).Add(deadline)
	fails := func(routedReason, reason, message string) verdict {
		routed := condition(echov1.ConditionRouted, metav1.ConditionFalse, routedReason, "%s", message)
		return verdict{routed, &Failure{Reason: reason, Message: routed.Message}, time.Time{}}
	}
	// waits is a failure, too, when the time is over.
	waits := func(reason, message string) verdict {
		routed := condition(echov1.ConditionRouted, metav1.ConditionUnknown, reason, "%s", message)
		if a.expired(end) {
			return verdict{routed, &Failure{Reason: reason, Message: routed.Message}, time.Time{}}
		}
		return verdict{routed, nil, end}
	}
	switch {
	case route.Failure != nil:
		return fails(route.Failure.Reason, echov1.ReasonRouteRejected, route.Failure.Message)
	case route.Unresolved != nil && route.Unresolved.Reason == echov1.ReasonRouteNotFound:
		return waits(echov1.ReasonRouteNotFound, route.Unresolved.Message)
	case route.Unresolved != nil:
		return fails(route.Unresolved.Reason, route.Unresolved.Reason, route.Unresolved.Message)
	case route.Object == nil || len(route.ParentRefs) == 0:
		message := cmp.Or(route.Waiting, fmt.Sprintf("HTTPRoute %s does not exist", children.Name(a.echo)))
		if a.expired(end) || a.previous(echov1.ConditionRouted).Reason == echov1.ReasonProgressDeadlineExceeded {
			return fails(echov1.ReasonProgressDeadlineExceeded, echov1.ReasonProgressDeadlineExceeded, message)
		}
		return waits(echov1.ReasonRouteNotCreated, message)
	}
	var rejected, pending []string
	var reason string
	for _, ref := range route.ParentRefs {
		accepted, lacks, rejection := parentStatusOf(ref, route.Object)
		switch name := parentName(ref, a.echo.Namespace); {
		case rejection != nil:
			reason = cmp.Or(reason, rejection.Reason)
			rejected = append(rejected, fmt.Sprintf("%s: %s: %s", name, rejection.Reason, Truncate(rejection.Message, maxParentMessage)))
		case !accepted:
			pending = append(pending, name+lacks)
		}
	}
	switch {
	case len(rejected) > 0:
		return fails(reason, echov1.ReasonRouteRejected, strings.Join(rejected, "; "))
	case len(pending) > 0:
		return waits(echov1.ReasonRouteNotReconciled,
			fmt.Sprintf("The newest HTTPRoute %s has no status from %s", children.Name(a.echo), strings.Join(pending, ", ")))
	default:
		message := "Every Gateway accepted the route"
		if names := children.Overrides(a.echo); len(names) > 0 {
			message += ", which overrides HTTPRoute " + strings.Join(names, ", ")
		}
		return verdict{condition: condition(echov1.ConditionRouted, metav1.ConditionTrue, echov1.ReasonAccepted, "%s", message)}
	}
}

// parentStatusOf returns what a parent reports for the current generation of the route: a rejection, or what its status
// lacks for an acceptance. Several controllers may report for one parent. A rejection by any of them counts, and a status
// of an earlier generation does not. Some controllers write no generation, which says nothing about the age.
func parentStatusOf(ref gatewayv1.ParentReference, route *gatewayv1.HTTPRoute) (accepted bool, lacks string, rejection *metav1.Condition) {
	for _, parent := range route.Status.Parents {
		if !children.SameParent(parent.ParentRef, ref, route.Namespace) {
			continue
		}
		missing := ""
		for _, conditionType := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
			c := meta.FindStatusCondition(parent.Conditions, string(conditionType))
			switch {
			case c == nil && conditionType == gatewayv1.RouteConditionResolvedRefs: // Some controllers write only Accepted.
			case c == nil:
				missing = fmt.Sprintf(" (%s has not set the condition %s)", parent.ControllerName, conditionType)
			case c.ObservedGeneration != 0 && c.ObservedGeneration != route.Generation:
				missing = cmp.Or(missing, fmt.Sprintf(" (the condition %s of %s is of generation %d instead of %d)",
					conditionType, parent.ControllerName, c.ObservedGeneration, route.Generation))
			case c.Status == metav1.ConditionFalse:
				return false, "", c
			case c.Status != metav1.ConditionTrue:
				missing = cmp.Or(missing, fmt.Sprintf(" (the condition %s of %s is %s)", conditionType, parent.ControllerName, c.Status))
			}
		}
		accepted, lacks = accepted || missing == "", cmp.Or(lacks, missing)
	}
	return accepted, lacks, nil
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

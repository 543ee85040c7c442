package status

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

const accepted, resolvedRefs = string(gatewayv1.RouteConditionAccepted), string(gatewayv1.RouteConditionResolvedRefs)

// withRoute adds a route to two Gateways.
func withRoute(echo *echov1.Echo) *echov1.Echo {
	echo.Spec.Route = &echov1.Route{
		ParentRefs: []echov1.ParentRef{{Name: "public", Namespace: "infra", SectionName: "https", Port: 8443}, {Name: "internal"}},
		Hostnames:  []string{"a.example"}, Scheme: "https", Paths: []echov1.Path{{Type: "PathPrefix", Value: "/"}},
	}
	return echo
}

// routeOf returns the HTTPRoute of generation 3 with the status of its parents.
func routeOf(parents ...gatewayv1.RouteParentStatus) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "op-demo", Name: "echo-hello", Generation: 3},
		Status:     gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: parents}},
	}
}

// parentStatus returns the status that the controller of the Echo's parent with that index reports: True for the current generation,
// unless one of the conditions contradicts.
func parentStatus(index int, conditions ...metav1.Condition) gatewayv1.RouteParentStatus {
	parent := gatewayv1.RouteParentStatus{ParentRef: children.ParentRefs(withRoute(newEcho()), children.Inputs{})[index], ControllerName: "example.com/gateway"}
	for _, conditionType := range []string{accepted, resolvedRefs} {
		parent.Conditions = append(parent.Conditions, metav1.Condition{Type: conditionType, Status: metav1.ConditionTrue, Reason: conditionType, ObservedGeneration: 3})
	}
	for _, c := range conditions {
		meta.SetStatusCondition(&parent.Conditions, c)
	}
	return parent
}

// no returns a rejection of the current generation.
func no(conditionType, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: 3}
}

// withRef returns the status with another reference to the parent.
func withRef(parent gatewayv1.RouteParentStatus, change func(*gatewayv1.ParentReference)) gatewayv1.RouteParentStatus {
	change(&parent.ParentRef)
	return parent
}

func without(conditionType string, parent gatewayv1.RouteParentStatus) gatewayv1.RouteParentStatus {
	meta.RemoveStatusCondition(&parent.Conditions, conditionType)
	return parent
}

const (
	public    = "Gateway infra/public, listener https, port 8443"
	internal  = "Gateway op-demo/internal"
	noStatus  = "Unknown RouteNotReconciled: The newest HTTPRoute echo-hello has no status from "
	allAccept = "True Accepted: Every Gateway accepted the route"
)

// routeTests describe observations of the HTTPRoute, with status, reason and message of Routed, and
// the reasons of Ready and Degraded.
var routeTests = map[string]struct {
	observed Route
	want     string
	others   string
}{
	"the API is not installed": {Route{Unresolved: &Failure{echov1.ReasonGatewayAPINotInstalled, "m"}},
		"False GatewayAPINotInstalled: m",
		"-GatewayAPINotInstalled +GatewayAPINotInstalled"},
	"no HTTPRoute": {Route{}, "Unknown RouteNotCreated: HTTPRoute echo-hello does not exist", "-RouteNotCreated -AsExpected"},
	"no status":    {Route{Object: routeOf()}, noStatus + public + ", " + internal, "-RouteNotReconciled -AsExpected"},
	"one status":   {Route{Object: routeOf(parentStatus(0))}, noStatus + internal, "-RouteNotReconciled -AsExpected"},
	"all accept":   {Route{Object: routeOf(parentStatus(1), parentStatus(0))}, allAccept, "+Ready -AsExpected"},
	"an overridden HTTPRoute is missing": {Route{Object: routeOf(parentStatus(1), parentStatus(0)), Unresolved: &Failure{echov1.ReasonRouteNotFound, "m"}},
		"Unknown RouteNotFound: m", "-RouteNotFound -AsExpected"},
	"an HTTPRoute cannot be overridden": {Route{Object: routeOf(parentStatus(1), parentStatus(0)), Unresolved: &Failure{echov1.ReasonRouteNotOverridable, "m"}},
		"False RouteNotOverridable: m", "-RouteNotOverridable +RouteNotOverridable"},
	"references without defaults": {Route{Object: routeOf(parentStatus(0), withRef(parentStatus(1), func(r *gatewayv1.ParentReference) {
		r.Group, r.Kind, r.Namespace = nil, nil, new(gatewayv1.Namespace("op-demo"))
	}))}, allAccept, "+Ready -AsExpected"},
	"a status for an earlier generation": {Route{Object: routeOf(parentStatus(0), parentStatus(1, metav1.Condition{
		Type: accepted, Status: metav1.ConditionTrue, Reason: accepted, ObservedGeneration: 2,
	}))}, noStatus + internal + " (the condition Accepted of example.com/gateway is of generation 2 instead of 3)", "-RouteNotReconciled -AsExpected"},
	"a rejection of an earlier generation": {Route{Object: routeOf(parentStatus(0), parentStatus(1, metav1.Condition{
		Type: accepted, Status: metav1.ConditionFalse, Reason: "NotAllowedByListeners", ObservedGeneration: 2,
	}))}, noStatus + internal + " (the condition Accepted of example.com/gateway is of generation 2 instead of 3)", "-RouteNotReconciled -AsExpected"},
	"a condition without a generation": {Route{Object: routeOf(parentStatus(0), parentStatus(1, metav1.Condition{
		Type: accepted, Status: metav1.ConditionTrue, Reason: accepted,
	}))}, allAccept, "+Ready -AsExpected"},
	"a rejection without a generation": {Route{Object: routeOf(parentStatus(0), parentStatus(1, metav1.Condition{
		Type: accepted, Status: metav1.ConditionFalse, Reason: "NoMatchingParent", Message: "m",
	}))}, "False NoMatchingParent: " + internal + ": NoMatchingParent: m", "-RouteRejected +RouteRejected"},
	"ResolvedRefs is missing": {Route{Object: routeOf(parentStatus(0), without(resolvedRefs, parentStatus(1)))}, allAccept, "+Ready -AsExpected"},
	"Accepted is missing": {Route{Object: routeOf(parentStatus(0), without(accepted, parentStatus(1)))},
		noStatus + internal + " (example.com/gateway has not set the condition Accepted)", "-RouteNotReconciled -AsExpected"},
	"Accepted is Unknown": {Route{Object: routeOf(parentStatus(0), parentStatus(1, metav1.Condition{
		Type: accepted, Status: metav1.ConditionUnknown, Reason: "Pending", ObservedGeneration: 3,
	}))}, noStatus + internal + " (the condition Accepted of example.com/gateway is Unknown)", "-RouteNotReconciled -AsExpected"},
	"one of two rejects": {Route{Object: routeOf(parentStatus(0, no(accepted, "NotAllowedByListeners", "no listener\nallows it")), parentStatus(1))},
		"False NotAllowedByListeners: " + public + ": NotAllowedByListeners: no listener allows it", "-RouteRejected +RouteRejected"},
	"both reject": {Route{Object: routeOf(parentStatus(1, no(resolvedRefs, "BackendNotFound", "no Service")), parentStatus(0, no(accepted, "NoMatchingParent", "no port")))},
		"False NoMatchingParent: " + public + ": NoMatchingParent: no port; " + internal + ": BackendNotFound: no Service", "-RouteRejected +RouteRejected"},
	"one rejects, one has not responded": {Route{Object: routeOf(parentStatus(1, no(resolvedRefs, "BackendNotFound", "no Service")))},
		"False BackendNotFound: " + internal + ": BackendNotFound: no Service", "-RouteRejected +RouteRejected"},
	"another controller responded for an earlier generation": {Route{Object: routeOf(parentStatus(0), parentStatus(1, metav1.Condition{
		Type: accepted, Status: metav1.ConditionFalse, Reason: "NotAllowedByListeners", ObservedGeneration: 1,
	}), parentStatus(1))}, allAccept, "+Ready -AsExpected"},
	"another controller rejects": {Route{Object: routeOf(parentStatus(0), parentStatus(1), parentStatus(1, no(accepted, "NoMatchingParent", "not mine")))},
		"False NoMatchingParent: " + internal + ": NoMatchingParent: not mine", "-RouteRejected +RouteRejected"},
	"long messages of both": {Route{Object: routeOf(parentStatus(0, no(accepted, "A", strings.Repeat("x", 32768))), parentStatus(1, no(accepted, "B", "y")))},
		"False A: " + public + ": A: " + strings.Repeat("x", 399) + "…; " + internal + ": B: y", "-RouteRejected +RouteRejected"},
}

func TestRoutedMirrorsTheStatusOfTheParents(t *testing.T) {
	for name, test := range routeTests {
		t.Run(name, func(t *testing.T) {
			expectRouted(t, Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Route: &test.observed}, test.want, test.others)
		})
	}
}

func expectRouted(t *testing.T, observed Observation, want, others string) {
	t.Helper()
	conditions := statusOf(withRoute(newEcho()), observed).Conditions
	if c := meta.FindStatusCondition(conditions, echov1.ConditionRouted); c == nil || fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message) != want {
		t.Errorf("Routed = %+v, want %s", c, want)
	}
	if got := signed(conditions[0]) + " " + signed(*meta.FindStatusCondition(conditions, echov1.ConditionDegraded)); got != others {
		t.Errorf("Ready and Degraded = %s, want %s", got, others)
	}
}

// A status for another Gateway, listener or port is not a status for the parent.
func TestRoutedNeedsAStatusForEachParent(t *testing.T) {
	for name, change := range map[string]func(*gatewayv1.ParentReference){
		"group":     func(r *gatewayv1.ParentReference) { r.Group = new(gatewayv1.Group("")) },
		"kind":      func(r *gatewayv1.ParentReference) { r.Kind = new(gatewayv1.Kind("Service")) },
		"namespace": func(r *gatewayv1.ParentReference) { r.Namespace = nil },
		"name":      func(r *gatewayv1.ParentReference) { r.Name = "other" },
		"listener":  func(r *gatewayv1.ParentReference) { r.SectionName = nil },
		"port":      func(r *gatewayv1.ParentReference) { r.Port = new(int32(443)) },
	} {
		t.Run(name, func(t *testing.T) {
			route := &Route{Object: routeOf(withRef(parentStatus(0), change), parentStatus(1))}
			expectRouted(t, Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Route: route}, noStatus+public, "-RouteNotReconciled -AsExpected")
		})
	}
}

func TestARolloutAndFailuresTakePrecedenceOverTheRoute(t *testing.T) {
	route := &Route{Object: routeOf(parentStatus(0, no(accepted, "NoMatchingParent", "no port")), parentStatus(1))}
	routed := "False NoMatchingParent: " + public + ": NoMatchingParent: no port"
	expectRouted(t, Observation{Deployment: deployment(3, 2, 3, 3), Service: &corev1.Service{}, Route: route}, routed, "-RollingOut -AsExpected")
	expectRouted(t, Observation{Deployment: deployment(1, 1, 1, 1, replicaFailure), Service: &corev1.Service{}, Route: route}, routed, "-PodsRejected +PodsRejected")
	conflict := Failure{Reason: echov1.ReasonConflict, Message: "HTTPRoute echo-hello exists"}
	route.Failure = &conflict
	expectRouted(t, Observation{Deployment: deployment(2, 2, 2, 2), Service: &corev1.Service{}, Rejected: []Failure{conflict}, Route: route},
		"False Conflict: HTTPRoute echo-hello exists", "-Conflict +Conflict")
}

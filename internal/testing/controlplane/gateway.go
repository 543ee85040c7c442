package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

// The name of a Gateway decides which status its controller sets. A Gateway with any other name
// accepts the route.
const (
	// MissingGateway does not exist: no controller responds.
	MissingGateway = "missing"
	// StaleGateway has a controller that responds for earlier generations of a route only: 0 for a new one.
	StaleGateway = "stale"
	// ClosedGateway has no listener that allows routes from the namespace.
	ClosedGateway = "closed"
	// OtherHostGateway has no listener with a hostname of the route.
	OtherHostGateway = "other-host"
)

const (
	// gatewayPeriod is the time between two lists of all routes.
	gatewayPeriod = 500 * time.Millisecond
	// concurrentRoutes is how many routes the controllers handle at the same time.
	concurrentRoutes = 10
)

// GatewayCRDs reads CRDs of the Gateway API from its module, for example that of "httproutes".
func GatewayCRDs(root string, resources ...string) (crds []*apiextensionsv1.CustomResourceDefinition, err error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api")
	list.Dir, list.Stderr = root, os.Stderr
	directory, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("find the module of the Gateway API: %w", err)
	}
	for _, resource := range resources {
		file := filepath.Join(strings.TrimSpace(string(directory)), "config", "crd", "standard", gatewayv1.GroupName+"_"+resource+".yaml")
		text, err := os.ReadFile(file) //nolint:gosec // A file of the module.
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

// StartGateways sets the status of every HTTPRoute as controllers of Gateways do, until the context is done.
// It polls, so that it continues at once after its CRD was reinstalled.
func (c *ControlPlane) StartGateways(ctx context.Context) {
	go wait.UntilWithContext(ctx, func(ctx context.Context) {
		var routes gatewayv1.HTTPRouteList
		if c.Client.List(ctx, &routes) != nil {
			return // The CRD may not be installed.
		}
		// There may be hundreds, and no route may wait for all others.
		workqueue.ParallelizeUntil(ctx, concurrentRoutes, len(routes.Items), func(i int) {
			route := &routes.Items[i]
			before := route.DeepCopy()
			SetRouteStatus(route, metav1.Now())
			if !equality.Semantic.DeepEqual(before.Status, route.Status) {
				_ = c.Client.Status().Patch(ctx, route, client.MergeFrom(before)) // It is repeated.
			}
		})
	}, gatewayPeriod)
}

// SetRouteStatus sets the status that the controllers of the route's Gateways report at some time.
func SetRouteStatus(route *gatewayv1.HTTPRoute, now metav1.Time) {
	before := route.Status.Parents
	route.Status.Parents = nil
	for _, ref := range route.Spec.ParentRefs {
		accepted := metav1.Condition{Type: string(gatewayv1.RouteConditionAccepted), Status: metav1.ConditionTrue,
			Reason: string(gatewayv1.RouteReasonAccepted), ObservedGeneration: route.Generation, LastTransitionTime: now}
		switch ref.Name {
		case MissingGateway:
			continue
		case StaleGateway:
			accepted.ObservedGeneration--
		case ClosedGateway:
			accepted.Status, accepted.Reason = metav1.ConditionFalse, string(gatewayv1.RouteReasonNotAllowedByListeners)
			accepted.Message = "No listener allows routes from namespace " + route.Namespace
		case OtherHostGateway:
			accepted.Status, accepted.Reason = metav1.ConditionFalse, string(gatewayv1.RouteReasonNoMatchingListenerHostname)
			accepted.Message = "No listener has a hostname of the route"
		}
		resolved := metav1.Condition{Type: string(gatewayv1.RouteConditionResolvedRefs), Status: metav1.ConditionTrue,
			Reason: string(gatewayv1.RouteReasonResolvedRefs), ObservedGeneration: accepted.ObservedGeneration, LastTransitionTime: now}
		parent := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: "example.com/gateways"}
		for i := range before { // Its conditions keep their transition times.
			if equality.Semantic.DeepEqual(before[i].ParentRef, ref) {
				parent.Conditions = before[i].Conditions
			}
		}
		meta.SetStatusCondition(&parent.Conditions, accepted)
		meta.SetStatusCondition(&parent.Conditions, resolved)
		route.Status.Parents = append(route.Status.Parents, parent)
	}
}

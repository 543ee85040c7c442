// Package scenarios has the suites of the campaign: what happens to the operator, its API server
// and its objects.
package scenarios

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// Suites lists all suites, in the order in which they run. In the short form, each returns the scenarios of
// the fixed core: few that are fast, and that detect the violations that define a guarantee.
var Suites = []harness.Suite{
	{Name: "crash points", Scenarios: crashPoints},
	{Name: "stale reads", Scenarios: staleReads},
	{Name: "schedules", Scenarios: schedules},
	{Name: "operations", Scenarios: operations},
	{Name: "external writers", Scenarios: externalWriters},
	{Name: "rejections", Scenarios: rejections},
	{Name: "webhooks", Scenarios: webhooks},
	{Name: "isolation", Scenarios: isolations, Separate: true, MaxWorkers: 1},
	{Name: "lifecycles", Scenarios: lifecycles},
	{Name: "policies", Scenarios: policies},
	{Name: "combinations", Scenarios: combinations},
	{Name: "obstacles", Scenarios: obstacles, Separate: true, MaxWorkers: 1, Long: true},
	{Name: "outages", Scenarios: outages, Separate: true, MaxWorkers: 1},
	{Name: "two leaders", Scenarios: leaders, Separate: true},
}

const (
	// Names of Echoes.
	one = "one"
	two = "two"

	// Images that no operator uses by itself.
	customImage = "docker.io/library/own:1"
	otherImage  = "docker.io/library/other:1"
)

// deployment is the kind of child that rolls out.
var deployment = kinds.ByName("Deployment")

// service is the kind of child that clients connect to.
var service = kinds.ByName("Service")

// verifier is the kind of child that verifies the response.
var verifier = kinds.ByName("VerifierDeployment")

// everyChild returns the spec of an Echo with a child of each kind, except for its verifier: the operator
// writes that after the rollout, so that a scenario takes longer.
func everyChild() echov1.EchoSpec {
	return echov1.EchoSpec{Message: "m", Replicas: 2, Route: toGateway("public")}
}

// withChild returns the spec of everyChild, with a verifier of that kind if it is one.
func withChild(kind children.Kind) echov1.EchoSpec {
	spec := everyChild()
	if kind.Verifier {
		spec.Verify = &echov1.Verify{From: echov1.VerifyFromCluster}
		if !kind.Wanted(&echov1.Echo{Spec: spec}) {
			spec.Verify.From = echov1.VerifyFromEveryNode
		}
	}
	return spec
}

// createReady creates the Echo "one" with every child, and waits until it is ready.
func createReady(ctx context.Context, e *harness.Environment) error {
	return createReadyWith(ctx, e, deployment)
}

// createReadyWith does the same for an Echo that also has a child of the kind.
func createReadyWith(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := e.CreateEcho(ctx, one, withChild(kind)); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, one); err != nil {
		return err
	}
	return e.Settle(ctx)
}

// toGateway returns a route to the Gateway.
func toGateway(name string) *echov1.Route {
	return &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: name}}, Hostnames: []string{"a.example"}}
}

func memoryLimit(quantity string) map[corev1.ResourceName]resource.Quantity {
	return map[corev1.ResourceName]resource.Quantity{corev1.ResourceMemory: resource.MustParse(quantity)}
}

// plural returns the kind's name for several objects, for names of scenarios.
func plural(kind children.Kind) string { return kind.Name + "s" }

package scenarios

import (
	"context"
	"net/http"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// behavior is how a webhook behaves.
type behavior struct {
	name     string
	response webhookResponse
	// timeout is the webhook's timeoutSeconds.
	timeout int32
	// ignore allows requests when the webhook fails.
	ignore bool
	// converges is true if an Echo becomes ready while the webhook is in effect.
	converges bool
	// mutating is true if only a mutating webhook can behave so. The API server's error does not contain its name.
	mutating bool
}

// behaviors differ in what the operator learns, and in how long that takes.
var behaviors = []behavior{
	{name: "denies with 403", response: deny(http.StatusForbidden, 0), timeout: 2},
	{name: "denies with 500", response: deny(http.StatusInternalServerError, 0), timeout: 2},
	{name: "denies with 409", response: deny(http.StatusConflict, 0), timeout: 2},
	{name: "denies with 429 and a Retry-After of 20 s", response: deny(http.StatusTooManyRequests, 20), timeout: 2},
	{name: "denies with 429 after three seconds", timeout: 5, response: func(w http.ResponseWriter, r *http.Request, c webhookCall) {
		c.wait(r.Context(), 3*time.Second)
		deny(http.StatusTooManyRequests, 0)(w, r, c)
	}},
	{name: "denies every other request", response: flap, timeout: 2, converges: true},
	{name: "responds just before its timeout", response: slow(1500 * time.Millisecond), timeout: 2, converges: true},
	{name: "hangs until its timeout of 10 s", response: hang, timeout: 10},
	{name: "hangs until its timeout of 30 s", response: hang, timeout: 30},
	{name: "hangs and is ignored", response: hang, timeout: 2, ignore: true, converges: true},
	{name: "closes the connection", response: disconnect, timeout: 2},
	{name: "returns a patch of an absent field", timeout: 2, mutating: true, response: patch(`[{"op":"remove","path":"/spec/absent"}]`)},
}

// webhooks has an admission webhook fail in each way, for the creation and the update of a child, and for
// the status. The fixed core has each kind of write once.
func webhooks(o harness.Options) (all []harness.Scenario, err error) {
	statuses := echov1.GroupVersion.WithResource(kinds.EchoStatus)
	for i, way := range behaviors {
		rejections := []rejection{
			{name: "creations of Services", child: service, reason: echov1.ReasonRejected, available: echov1.ReasonNotServing,
				install: way.install(service.Resource, admissionregistrationv1.Create, func(e *harness.Environment) func(context.Context) error {
					return probeCreation(e, service)
				})},
			{name: "updates of Deployments", ofEdit: true, child: deployment, reason: echov1.ReasonRejected, available: echov1.ReasonServing,
				install: way.install(deployment.Resource, admissionregistrationv1.Update, func(e *harness.Environment) func(context.Context) error {
					return probeUpdate(e, childOf(e, deployment))
				})},
			{name: "updates of statuses", ofEdit: true,
				install: way.install(statuses, admissionregistrationv1.Update, func(e *harness.Environment) func(context.Context) error {
					return probeStatus(e, one)
				})},
		}
		switch {
		case o.Short && i == len(rejections):
			return all, nil
		case o.Short:
			rejections = rejections[i : i+1]
		case way.mutating:
			rejections = rejections[:2]
		}
		for _, r := range rejections {
			r.name = "webhook for " + r.name + " " + way.name
			r.converges = way.converges
			r.message = webhookDomain
			// After a slow failure, the message may say that the child changed meanwhile.
			if slowly := way.timeout > 2; way.mutating || slowly {
				r.message = r.child.Name
			}
			all = append(all, harness.Scenario{Name: r.name, Run: r.run})
		}
	}
	return all, nil
}

// install returns how to install a webhook that behaves so, of which the probe is a dry run.
func (b behavior) install(
	resource schema.GroupVersionResource, operation admissionregistrationv1.OperationType, probe func(*harness.Environment) func(context.Context) error,
) func(context.Context, *harness.Environment) (undo, error) {
	return func(ctx context.Context, e *harness.Environment) (undo, error) {
		hook := &webhook{
			resources: []schema.GroupVersionResource{resource}, operation: operation,
			mutating: b.mutating, timeout: b.timeout, ignore: b.ignore, response: b.response,
		}
		return hook.install(ctx, e, probe(e))
	}
}

// childOf returns the child of the subject's Echo "one", with its name only.
func childOf(e *harness.Environment, kind children.Kind) client.Object {
	child := kinds.New(kind)
	child.SetNamespace(e.Subject)
	child.SetName(kinds.ChildName(kind, one))
	return child
}

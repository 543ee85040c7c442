package scenarios

import (
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// disturbances are the classes of disturbances: external writers, rejections, mutations, and faults
// of the connection to the API server.
var disturbances = [][]disturbance{
	{
		changesOnce("label of the Deployment removed", deployment, func(o client.Object) { removeManagedBy(o) }),
		changesOnce("Deployment scaled", deployment, func(o client.Object) { o.(*appsv1.Deployment).Spec.Replicas = ptr.To[int32](4) }),
		changesOnce("selector of the Service changed", service, func(o client.Object) {
			o.(*corev1.Service).Spec.Selector = map[string]string{"app": "other"}
		}),
		changesOnce("owner of the Deployment removed", deployment, func(o client.Object) { o.SetOwnerReferences(nil) }),
		deletesOnce(deployment), deletesOnce(kinds.ByName("PodDisruptionBudget")),
		changesRepeatedly("image changed repeatedly", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = otherImage }),
	},
	{
		{name: "quota of Deployments", start: quota("count/deployments.apps", "1")},
		{name: "quota of Services", start: quota("count/services", "1")},
		{name: "quota of pods", start: quota("pods", "2")},
		{name: "LimitRange", start: limitRange},
		{name: "policy against the Deployment", start: policy(deployment)},
		{name: "policy against the Service", start: policy(service)},
	},
	{
		mutates("registry rewritten", policyNamed("Deployment: rewrites the image registry")),
		mutates("message changed by a policy", policyNamed("Deployment: changes the message")),
		mutates("replicas changed by a policy", policyNamed("Deployment: changes the replicas")),
		mutates("selector changed by a policy", policyNamed("Service: changes the selector")),
		mutates("label removed by a policy", policyNamed("Deployment: removes the label of the operator")),
	},
	{
		faulty("writes fail", plan{request: func(r proxy.Request) proxy.Fault {
			if !r.IsWrite() {
				return proxy.Fault{}
			}
			return proxy.Fault{Status: http.StatusInternalServerError}
		}}),
		faulty("responses dropped", plan{request: func(r proxy.Request) proxy.Fault { return proxy.Fault{DropResponse: r.IsWrite()} }}),
		faulty("connections reset", plan{request: func(proxy.Request) proxy.Fault { return proxy.Fault{Reset: true} }}),
		faulty("events dropped", plan{event: func(proxy.Request) proxy.EventFault { return proxy.Drop }}),
		{name: "random faults", start: func(_ context.Context, e *harness.Environment) (undo, error) {
			e.Proxy.SetPlan(newRandomPlan(1, rand.New(rand.NewPCG(1, 5)))) //nolint:gosec // It must be reproducible.
			return nothing, nil
		}},
		{name: "operator restarted", start: func(_ context.Context, e *harness.Environment) (undo, error) { return nothing, e.Restart() }},
	},
}

func policyNamed(name string) policyCase {
	all := allPolicies()
	return all[slices.IndexFunc(all, func(p policyCase) bool { return p.name == name })]
}

func nothing(context.Context) error { return nil }

// plan is a proxy.Plan of functions, each of which may be nil.
type plan struct {
	request func(proxy.Request) proxy.Fault
	event   func(proxy.Request) proxy.EventFault
}

// Request implements proxy.Plan.
func (p plan) Request(r proxy.Request) proxy.Fault {
	if p.request == nil {
		return proxy.Fault{}
	}
	return p.request(r)
}

// Event implements proxy.Plan.
func (p plan) Event(r proxy.Request) proxy.EventFault {
	if p.event == nil {
		return proxy.Deliver
	}
	return p.event(r)
}

func faulty(name string, p plan) disturbance {
	return disturbance{name: name, start: func(_ context.Context, e *harness.Environment) (undo, error) {
		e.Proxy.SetPlan(p)
		return func(context.Context) error { e.Proxy.SetPlan(nil); return nil }, nil
	}}
}

// childTimeout is how long an external writer waits for a child that a rejection may prevent.
const childTimeout = 5 * time.Second

// onChildOfSubject does something to the child of the Echo "one" in the subject namespace, if the
// child exists soon.
func onChildOfSubject(ctx context.Context, e *harness.Environment, kind children.Kind, do func(context.Context, client.Object) error) error {
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	for ctx.Err() == nil {
		child := kinds.New(kind)
		err := e.Client.Get(ctx, client.ObjectKey{Namespace: e.Subject, Name: kinds.ServerName(one)}, child)
		if err == nil {
			err = do(ctx, child)
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
			return err
		}
		harness.Pause(ctx, time.Second/10)
	}
	return nil
}

// changesOnce has an external writer change a child. A policy may prevent that.
func changesOnce(name string, kind children.Kind, change func(client.Object)) disturbance {
	return disturbance{name: name, ofChildren: true, start: func(ctx context.Context, e *harness.Environment) (undo, error) {
		return nothing, onChildOfSubject(ctx, e, kind, func(ctx context.Context, child client.Object) error {
			err := e.Update(ctx, child, func() { change(child) })
			if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
				return nil
			}
			return err
		})
	}}
}

func deletesOnce(kind children.Kind) disturbance {
	return disturbance{name: kind.Name + " deleted", ofChildren: true, start: func(ctx context.Context, e *harness.Environment) (undo, error) {
		e.AllowCreation(kind, one)
		return nothing, onChildOfSubject(ctx, e, kind, func(ctx context.Context, child client.Object) error { return e.Client.Delete(ctx, child) })
	}}
}

// changesRepeatedly has an external writer change the Deployment again whenever the operator has
// corrected it.
func changesRepeatedly(name string, change func(*appsv1.Deployment)) disturbance {
	return disturbance{name: name, ofChildren: true, endless: true, start: func(ctx context.Context, e *harness.Environment) (undo, error) {
		stop := repeatDrift(ctx, e, deployment, ofDeployment(name, change))
		return func(context.Context) error { stop(); return nil }, nil
	}}
}

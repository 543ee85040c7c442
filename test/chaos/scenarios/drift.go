package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// drift is a change of fields that the operator owns.
type drift struct {
	name   string
	change func(client.Object)
}

// driftsByKind has changes of the spec of each child kind, of which the first one is also repeated after
// each write of the operator. A test fails for a kind without any.
var driftsByKind = map[string][]drift{
	"Service": {
		ofService("selector", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "other"} }),
		ofService("additional selector", func(s *corev1.Service) { s.Spec.Selector["app"] = "other" }),
		ofService("targetPort", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(1) }),
		ofService("additional port", func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81})
		}),
		ofService("type LoadBalancer with all of its fields", func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			s.Spec.LoadBalancerClass = new("example.com/class")
		}),
		ofService("type ExternalName", func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
		}),
	},
	"Deployment": {
		ofDeployment("more replicas", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](4) }),
		ofDeployment("strategy", func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		}),
		ofDeployment("paused", func(d *appsv1.Deployment) { d.Spec.Paused = true }),
		ofContainer("image", func(c *corev1.Container) { c.Image = otherImage }),
		ofContainer("args", func(c *corev1.Container) { c.Args[0] = "-text=other" }),
		ofContainer("command", func(c *corev1.Container) { c.Command = []string{"serve"} }),
		ofContainer("no liveness probe", func(c *corev1.Container) { c.LivenessProbe = nil }),
		ofContainer("no ports", func(c *corev1.Container) { c.Ports = nil }),
		ofContainer("security context", func(c *corev1.Container) {
			c.SecurityContext.Privileged = new(true)
			c.SecurityContext.AllowPrivilegeEscalation = nil
		}),
		ofDeployment("host network", func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true }),
		ofDeployment("label of the pods", func(d *appsv1.Deployment) { delete(d.Spec.Template.Labels, children.ManagedByLabel) }),
	},
	"PodDisruptionBudget": {
		{"maxUnavailable", func(o client.Object) {
			o.(*policyv1.PodDisruptionBudget).Spec.MaxUnavailable = new(intstr.FromInt32(2))
		}},
		{"selector", func(o client.Object) {
			o.(*policyv1.PodDisruptionBudget).Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
		}},
	},
	"VerifierDeployment": {
		ofVerifier("arguments", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Args = []string{"-layer=service", "-status=0"} }),
		ofDeployment("no replicas", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }),
		ofVerifier("label of the answer", func(t *corev1.PodTemplateSpec) { t.Labels[children.AnswerLabel] = "other" }),
		ofVerifier("label that the Service selects", func(t *corev1.PodTemplateSpec) { t.Labels[children.EchoLabel] = one }),
	},
	"VerifierDaemonSet": {
		ofVerifier("arguments", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Args = []string{"-layer=service", "-status=0"} }),
		{"update strategy", func(o client.Object) {
			o.(*appsv1.DaemonSet).Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		}},
	},
	"HTTPRoute": {
		ofRoute("hostname", func(s *gatewayv1.HTTPRouteSpec) { s.Hostnames = []gatewayv1.Hostname{"b.example"} }),
		ofRoute("no parent", func(s *gatewayv1.HTTPRouteSpec) { s.ParentRefs = nil }),
		ofRoute("backend", func(s *gatewayv1.HTTPRouteSpec) { s.Rules[0].BackendRefs[0].Name = "other" }),
		ofRoute("no rules", func(s *gatewayv1.HTTPRouteSpec) { s.Rules = nil }),
	},
}

// metadataDrifts are changes of the metadata of children of every kind.
var metadataDrifts = []drift{
	{"no label of the operator", func(o client.Object) { removeManagedBy(o) }},
	{"no label of the Echo", func(o client.Object) { o.SetLabels(map[string]string{children.ManagedByLabel: children.ManagedBy}) }},
	{"no labels", func(o client.Object) { o.SetLabels(nil) }},
}

func ofService(name string, change func(*corev1.Service)) drift {
	return drift{name, func(o client.Object) { change(o.(*corev1.Service)) }}
}

func ofDeployment(name string, change func(*appsv1.Deployment)) drift {
	return drift{name, func(o client.Object) { change(o.(*appsv1.Deployment)) }}
}

func ofContainer(name string, change func(*corev1.Container)) drift {
	return ofDeployment(name, func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) })
}

// ofVerifier changes the pod template of a verifier, whether it is a Deployment or a DaemonSet.
func ofVerifier(name string, change func(*corev1.PodTemplateSpec)) drift {
	return drift{name, func(o client.Object) {
		switch o := o.(type) {
		case *appsv1.Deployment:
			change(&o.Spec.Template)
		case *appsv1.DaemonSet:
			change(&o.Spec.Template)
		}
	}}
}

func ofRoute(name string, change func(*gatewayv1.HTTPRouteSpec)) drift {
	return drift{name, func(o client.Object) { change(&o.(*gatewayv1.HTTPRoute).Spec) }}
}

// removeManagedBy removes the label by which the operator's cache selects objects.
func removeManagedBy(o client.Object) {
	labels := o.GetLabels()
	delete(labels, children.ManagedByLabel)
	o.SetLabels(labels)
}

// errUnchanged says that the API server stored a drift without a change.
var errUnchanged = errors.New("the update changed nothing")

// revertDrift changes the child of the Echo "one" in each way, and expects the operator to revert it.
func revertDrift(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	before, err := e.SubjectState(ctx)
	if err != nil {
		return err
	}
	for _, drift := range slices.Concat(driftsByKind[kind.Name], metadataDrifts) {
		if err := e.OnChild(ctx, one, kind, func(ctx context.Context, child client.Object) error {
			version := child.GetResourceVersion()
			if err := e.Update(ctx, child, func() { drift.change(child) }); err != nil {
				return err
			}
			if child.GetResourceVersion() == version {
				return errUnchanged
			}
			return nil
		}); err != nil {
			return fmt.Errorf("%s of %s: %w", drift.name, kind.Name, err)
		}
		if err := e.AwaitSubjectState(ctx, before, fmt.Sprintf("drift %q of %s is reverted", drift.name, kind.Name)); err != nil {
			return err
		}
	}
	return e.Verify(ctx)
}

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// drift is a change of fields that the operator owns.
type drift struct {
	name   string
	change func(client.Object)
}

// driftsByKind has changes of the spec beside those of withoutFields.
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
	"VerifierDeployment": {
		ofVerifier("arguments", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Args = []string{"-layer=service", "-status=0"} }),
		ofDeployment("no replicas", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](0) }),
		ofVerifier("label of the response", func(t *corev1.PodTemplateSpec) { t.Labels[children.ResponseLabel] = "other" }),
		ofVerifier("label that the Service selects", func(t *corev1.PodTemplateSpec) { t.Labels[children.EchoLabel] = one }),
	},
	"VerifierDaemonSet": {
		ofVerifier("arguments", func(t *corev1.PodTemplateSpec) { t.Spec.Containers[1].Args = []string{"-layer=service", "-status=0"} }),
		{"update strategy", func(o client.Object) {
			o.(*appsv1.DaemonSet).Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
		}},
	},
	"HTTPRoute": {
		{"backend", func(o client.Object) { o.(*gatewayv1.HTTPRoute).Spec.Rules[0].BackendRefs[0].Name = "other" }},
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

// removeManagedBy removes the label by which the operator's cache selects objects.
func removeManagedBy(o client.Object) {
	labels := o.GetLabels()
	delete(labels, children.ManagedByLabel)
	o.SetLabels(labels)
}

// withoutFields removes each field that the operator sets, of the spec if the kind has one.
func withoutFields(kind children.Kind, echo *echov1.Echo) (all []drift) {
	want := kinds.New(kind)
	kind.Mutate(want, echo, kinds.Inputs())
	parent, fields := []string{}, kinds.JSON(want)
	if spec, found := fields["spec"].(map[string]any); found {
		parent, fields = []string{"spec"}, spec
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name) {
			continue
		}
		all = append(all, drift{"no " + name, func(o client.Object) {
			object := kinds.JSON(o)
			unstructured.RemoveNestedField(object, append(parent, name)...)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, o); err != nil {
				panic(err) // The API server returned the object.
			}
		}})
	}
	return all
}

// errUnchanged says that the API server stored a drift without a change.
var errUnchanged = errors.New("the update changed nothing")

// driftsOf returns all drifts of the subject's child, of its spec first: those of withoutFields only if the API
// server neither requires the field nor defaults it to the desired state.
func driftsOf(ctx context.Context, e *harness.Environment, kind children.Kind) ([]drift, error) {
	echo, err := e.GetEcho(ctx, e.Subject, one)
	if err != nil {
		return nil, err
	}
	drifts := slices.Clone(driftsByKind[kind.Name])
	for _, drift := range withoutFields(kind, echo) {
		child := childOf(e, kind)
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := e.Client.Get(ctx, client.ObjectKeyFromObject(child), child); err != nil {
				return err
			}
			drift.change(child)
			return e.Client.Update(ctx, child, client.DryRunAll)
		})
		if err != nil && !apierrors.IsInvalid(err) {
			return nil, fmt.Errorf("%s of %s: %w", drift.name, kind.Name, err)
		}
		if err == nil && len(oracle.Differences(child, echo)) > 0 {
			drifts = append(drifts, drift)
		}
	}
	if len(drifts) == 0 {
		return nil, fmt.Errorf("%s: no drift of its spec, want one in driftsByKind", kind.Name)
	}
	return append(drifts, metadataDrifts...), nil
}

// revertDrift changes the child of the Echo "one" in each way, and expects the operator to revert it.
func revertDrift(ctx context.Context, e *harness.Environment, kind children.Kind) error {
	if err := createReadyWith(ctx, e, kind); err != nil {
		return err
	}
	before, err := e.SubjectState(ctx)
	if err != nil {
		return err
	}
	drifts, err := driftsOf(ctx, e, kind)
	if err != nil {
		return err
	}
	for _, drift := range drifts {
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

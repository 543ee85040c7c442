package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// BenchmarkObjectCost measures the API server's CPU time for each write of an Echo, and for the same
// write without a part of the object. See docs/performance.md.
func BenchmarkObjectCost(b *testing.B) {
	config, c := startAPIServer(b)
	must(b, c.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "performance"}}))

	for _, object := range []struct {
		name string
		of   func(*echov1.Echo) client.Object
	}{
		{"ConfigMap", func(*echov1.Echo) client.Object { return &corev1.ConfigMap{Data: map[string]string{"key": "value"}} }},
		{"Service", childOf(children.Service, nil)},
		{"PodDisruptionBudget", childOf(children.PodDisruptionBudget, nil)},
		{"Deployment", deploymentWithout(nil)},
		{"Deployment without labels and annotations of its own", deploymentWithout(func(d *appsv1.Deployment) { d.Labels, d.Annotations = nil, nil })},
		{"Deployment without fields that equal the defaults", deploymentWithout(dropDefaults)},
		{"Deployment without probes", deploymentWithout(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].LivenessProbe, d.Spec.Template.Spec.Containers[0].ReadinessProbe = nil, nil
		})},
		{"Deployment without topology spread constraints", deploymentWithout(func(d *appsv1.Deployment) { d.Spec.Template.Spec.TopologySpreadConstraints = nil })},
		{"Deployment without affinity", deploymentWithout(func(d *appsv1.Deployment) { d.Spec.Template.Spec.Affinity = nil })},
	} {
		b.Run("create/"+object.name, func(b *testing.B) {
			measureServer(b, func(i int) error {
				created := object.of(newTestEcho(fmt.Sprint("e", i), "hello"))
				created.SetNamespace("performance")
				created.SetName(fmt.Sprint("e", i))
				return c.Create(b.Context(), created)
			})
			// Each Service makes the next ones more expensive.
			must(b, c.DeleteAllOf(b.Context(), object.of(newTestEcho("e", "hello")), client.InNamespace("performance")))
		})
	}

	benchmarkChildUpdates(b, c)
	for _, group := range installEchoes(b, config) {
		benchmarkEchoes(b, c, group)
	}
	benchmarkStatus(b, c)
}

// measureServer reports the API server's CPU time for each call of a function, which gets the number
// of the call.
func measureServer(b *testing.B, write func(i int) error) {
	b.Helper()
	calls := 0
	used, err := measureCPU(os.Getpid(), func() error {
		for b.Loop() {
			if err := write(calls); err != nil {
				return err
			}
			calls++
		}
		return nil
	})
	must(b, err)
	b.ReportMetric(float64(used.apiServer.Microseconds())/float64(calls), "server-µs/op")
}

// childOf returns a child without its change.
func childOf[T any, P interface {
	*T
	client.Object
}](mutate func(P, *echov1.Echo), change func(P)) func(*echov1.Echo) client.Object {
	return func(echo *echov1.Echo) client.Object {
		child := P(new(T))
		mutate(child, echo)
		if change != nil {
			change(child)
		}
		return child
	}
}

func deploymentWithout(part func(*appsv1.Deployment)) func(*echov1.Echo) client.Object {
	return childOf(func(d *appsv1.Deployment, echo *echov1.Echo) { children.Deployment(d, echo, "http-echo") }, part)
}

// dropDefaults removes the fields that the API server would set to the same values.
func dropDefaults(d *appsv1.Deployment) {
	pod := &d.Spec.Template.Spec
	pod.TerminationGracePeriodSeconds = nil
	d.Spec.Strategy.Type = ""
	container := &pod.Containers[0]
	container.ImagePullPolicy = ""
	container.Ports[0].Protocol = ""
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		probe.TimeoutSeconds, probe.SuccessThreshold, probe.FailureThreshold = 0, 0, 0
		probe.HTTPGet.Scheme = ""
	}
	container.LivenessProbe.PeriodSeconds = 0
}

// benchmarkChildUpdates measures the update of a Deployment whose message changes, and of a ConfigMap.
func benchmarkChildUpdates(b *testing.B, c client.Client) {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "performance", Name: "edited"}, Data: map[string]string{"key": "value"}}
	must(b, c.Create(b.Context(), configMap))
	b.Run("update/ConfigMap", func(b *testing.B) {
		measureServer(b, func(i int) error {
			configMap.Data["key"] = fmt.Sprint(i, b.N)
			return c.Update(b.Context(), configMap)
		})
	})
	deployment := newDeployment("edited", "hello")
	must(b, c.Create(b.Context(), deployment))
	b.Run("update/Deployment by PUT", func(b *testing.B) {
		measureServer(b, func(i int) error {
			children.Deployment(deployment, newTestEcho("edited", fmt.Sprint("put ", i)), "http-echo")
			deployment.ManagedFields = nil
			return c.Update(b.Context(), deployment)
		})
	})
	b.Run("update/Deployment by JSON patch", func(b *testing.B) {
		measureServer(b, func(i int) error {
			patch := fmt.Appendf(nil, `[{"op":"replace","path":"/spec/template/spec/containers/0/args/0","value":"-text=patch %d"},
				{"op":"replace","path":"/metadata/resourceVersion","value":%q}]`, i, deployment.ResourceVersion)
			return c.Patch(b.Context(), deployment, client.RawPatch(types.JSONPatchType, patch))
		})
	})
}

// wholeGroup is the group of Echoes with the whole schema.
const wholeGroup = "whole.example.com"

// installEchoes installs copies of the CRD, each in a group of its own: whole, and without a part of its
// schema. It returns the groups.
func installEchoes(b *testing.B, config *rest.Config) []string {
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "crd", "bases", "kkloud.io_echoes.yaml"))
	must(b, err)
	parts := map[string]func(*apiextensionsv1.JSONSchemaProps){
		wholeGroup:                      func(*apiextensionsv1.JSONSchemaProps) {},
		"without-rules.example.com":     dropRules,
		"without-resources.example.com": func(s *apiextensionsv1.JSONSchemaProps) { dropSchema(s, "resources") },
		"without-pod.example.com":       func(s *apiextensionsv1.JSONSchemaProps) { dropSchema(s, "pod") },
	}
	groups := slices.Sorted(maps.Keys(parts))
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, group := range groups {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		must(b, yaml.Unmarshal(content, crd))
		crd.Spec.Group = group
		crd.Name = crd.Spec.Names.Plural + "." + crd.Spec.Group
		parts[group](crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		crds = append(crds, crd)
	}
	_, err = envtest.InstallCRDs(config, envtest.CRDInstallOptions{CRDs: crds})
	must(b, err)
	return groups
}

func dropRules(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations = nil
	for name, property := range s.Properties {
		dropRules(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		dropRules(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		dropRules(s.AdditionalProperties.Schema)
	}
}

// dropSchema lets a field of the spec contain anything.
func dropSchema(s *apiextensionsv1.JSONSchemaProps, field string) {
	spec := s.Properties["spec"]
	spec.Properties[field] = apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	s.Properties["spec"] = spec
}

// benchmarkEchoes measures the user's writes of Echoes of that group.
func benchmarkEchoes(b *testing.B, c client.Client, group string) {
	name, _, _ := strings.Cut(group, ".")
	ctx := b.Context()
	b.Run("create/Echo "+name, func(b *testing.B) {
		measureServer(b, func(i int) error { return c.Create(ctx, newUnstructuredEcho(b, group, fmt.Sprint("e", i))) })
		must(b, c.DeleteAllOf(ctx, newUnstructuredEcho(b, group, "e"), client.InNamespace("performance")))
	})
	echo := newUnstructuredEcho(b, group, "edited")
	must(b, c.Create(ctx, echo))
	b.Run("update/Echo "+name, func(b *testing.B) {
		measureServer(b, func(i int) error {
			must(b, unstructured.SetNestedField(echo.Object, fmt.Sprint("hello ", i), "spec", "message"))
			return c.Update(ctx, echo)
		})
	})
}

// benchmarkStatus measures the ways to write the status of an Echo.
func benchmarkStatus(b *testing.B, c client.Client) {
	ctx := b.Context()
	echo := newUnstructuredEcho(b, wholeGroup, "status")
	must(b, c.Create(ctx, echo))
	setStatus(b, echo)
	conditions, _, err := unstructured.NestedSlice(echo.Object, "status", "conditions")
	must(b, err)
	put := func(i int) error {
		must(b, unstructured.SetNestedField(echo.Object, int64(i), "status", "observedGeneration"))
		return c.Status().Update(ctx, echo)
	}
	b.Run(fmt.Sprintf("status/%d conditions, by PUT", len(conditions)), func(b *testing.B) { measureServer(b, put) })
	patch := func(method types.PatchType, format string) func(int) error {
		return func(i int) error {
			return c.Status().Patch(ctx, echo, client.RawPatch(method, fmt.Appendf(nil, format, i, echo.GetResourceVersion())))
		}
	}
	b.Run("status/by merge patch", func(b *testing.B) {
		measureServer(b, patch(types.MergePatchType, `{"status":{"observedGeneration":%d},"metadata":{"resourceVersion":%q}}`))
	})
	b.Run("status/by JSON patch", func(b *testing.B) {
		measureServer(b, patch(types.JSONPatchType, `[{"op":"replace","path":"/status/observedGeneration","value":%d},
			{"op":"replace","path":"/metadata/resourceVersion","value":%q}]`))
	})
	must(b, unstructured.SetNestedSlice(echo.Object, conditions[:1], "status", "conditions"))
	b.Run("status/1 condition, by PUT", func(b *testing.B) { measureServer(b, put) })
}

// newUnstructuredEcho returns an Echo with two replicas of that group.
func newUnstructuredEcho(b *testing.B, group, name string) *unstructured.Unstructured {
	b.Helper()
	echo := newTestEcho(name, "hello")
	echo.UID, echo.Spec.Replicas = "", 2
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(echo)
	must(b, err)
	u := &unstructured.Unstructured{Object: content}
	delete(u.Object, "status")
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: echov1.GroupVersion.Version, Kind: "Echo"})
	return u
}

// setStatus sets the status of an Echo whose pods are not ready.
func setStatus(b *testing.B, u *unstructured.Unstructured) {
	b.Helper()
	echo := newTestEcho("edited", "hello")
	echo.Status = status.Of(echo, status.Observation{Deployment: newDeployment("edited", "hello"), Service: &corev1.Service{}})
	for i := range echo.Status.Conditions {
		echo.Status.Conditions[i].LastTransitionTime = metav1.Now()
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(echo)
	must(b, err)
	u.Object["status"] = content["status"]
}

package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// waiting and rejected are reasons of the kubelet. Source: k8s.io/kubernetes/pkg/kubelet (images, kuberuntime,
// container, lifecycle, eviction and nodeshutdown packages).
var (
	waiting = []string{
		"ContainerCreating", "PodInitializing", "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "ErrImageNeverPull", "InvalidImageName",
		"RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError", "PreCreateHookError", "CreateContainerError",
		"PreStartHookError", "PostStartHookError", "CrashLoopBackOff", "RunContainerError", "KillContainerError", "CreatePodSandboxError",
		"ConfigPodSandboxError", "ResizePodInPlaceError",
	}
	rejected = []string{"OutOfcpu", "Evicted", "NodeShutdown", "UnexpectedAdmissionError"}
)

// kubeletStates are what the kubelet reports of pods that do not run.
func kubeletStates() (all []place) {
	add := func(name, image string) {
		all = append(all, mutation("kubelet "+name, jsonPatch("replace", "/spec/containers/0/image", fmt.Sprintf("%q", image))))
	}
	for _, reason := range waiting {
		add("waiting:"+reason, controlplane.Waiting+reason)
	}
	for _, reason := range rejected {
		add("rejected:"+reason, controlplane.Rejected+reason)
	}
	add("never ready", controlplane.NeverReady)
	add("flapping", controlplane.Flapping)
	return all
}

// mutation is a policy that changes the pods.
func mutation(name, patch string) place {
	return place{name: name, resource: podResource, holdsPods: true, policy: []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: matchResource(podResource, admissionregistrationv1.Create),
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: belongs + " ? " + patch + " : []"},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{},
	}}
}

// podSettings are the values of fields of a pod that the API server accepts and that hold the pod back: the survey
// creates a pod with each of them.
func (s *survey) podSettings(ctx context.Context, namespace string) (all []place, err error) {
	schemas, err := s.schemas()
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := s.Client.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabels{componentLabel: "server"}); err != nil {
		return nil, err
	}
	spec := pods.Items[0].Spec
	patches := map[string]string{}
	number := 0
	for _, c := range schemas.candidates("Pod spec", schemas["io.k8s.api.core.v1.PodSpec"], 0) {
		fields := c.value.(map[string]any)
		field := slices.Collect(maps.Keys(fields))[0]
		name := fmt.Sprintf("probe-%d", number)
		number++
		probe, err := podWith(namespace, name, spec, fields)
		if err != nil {
			return nil, err
		}
		if s.Client.Create(ctx, probe) == nil {
			patches[name] = addition(field, fields[field])
			all = append(all, place{id: name, name: c.path})
		}
	}
	accepted := len(all)
	harness.Pause(ctx, 5*time.Second) // Until the kubelet has reported them.
	ready, err := s.readyPods(ctx, namespace)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p place) bool { return slices.Contains(ready, p.id) })
	for i, p := range all {
		all[i] = mutation(p.name, patches[p.id])
	}
	fmt.Printf("obstacles: of %d values of fields of pods, the API server accepts %d, and %d hold a pod back\n", number, accepted, len(all))
	return all, nil
}

func podWith(namespace, name string, spec corev1.PodSpec, fields map[string]any) (*unstructured.Unstructured, error) {
	spec.NodeName = ""
	text, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
	if err != nil {
		return nil, err
	}
	pod := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &pod.Object); err != nil {
		return nil, err
	}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	for field, value := range fields {
		if present, found, _ := unstructured.NestedSlice(pod.Object, "spec", field); found {
			value = append(present, value.([]any)...)
		}
		pod.Object["spec"].(map[string]any)[field] = value
	}
	return pod, nil
}

// addition returns the CEL expression of a patch that sets a field of a pod, or adds an item to a list.
func addition(field string, value any) string {
	whole := jsonPatch("add", "/spec/"+field, celOf(value))
	items, isList := value.([]any)
	if !isList {
		return whole
	}
	return fmt.Sprintf("(has(object.spec.%s) ? %s : %s)", field, jsonPatch("add", "/spec/"+field+"/-", celOf(items[0])), whole)
}

func (s *survey) readyPods(ctx context.Context, namespace string) (ready []string, err error) {
	var pods corev1.PodList
	err = s.Client.List(ctx, &pods, client.InNamespace(namespace))
	for i := range pods.Items {
		for _, c := range pods.Items[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready = append(ready, pods.Items[i].Name)
			}
		}
	}
	return ready, err
}

// podSchema is a schema of OpenAPI.
type podSchema struct {
	Ref        string               `json:"$ref"`
	AllOf      []podSchema          `json:"allOf"`
	Type       string               `json:"type"`
	Enum       []any                `json:"enum"`
	Properties map[string]podSchema `json:"properties"`
	Required   []string             `json:"required"`
	Items      *podSchema           `json:"items"`
}

type podSchemas map[string]podSchema

// schemas reads those of the core API.
func (s *survey) schemas() (podSchemas, error) {
	d, err := discovery.NewDiscoveryClientForConfig(s.Plane.Config)
	if err != nil {
		return nil, err
	}
	paths, err := d.OpenAPIV3().Paths()
	if err != nil {
		return nil, err
	}
	text, err := paths["api/v1"].Schema("application/json")
	if err != nil {
		return nil, err
	}
	var document struct{ Components struct{ Schemas podSchemas } }
	return document.Components.Schemas, json.Unmarshal(text, &document)
}

// candidate is a value for a schema, and which of its fields it sets.
type candidate struct {
	path  string
	value any
}

// depth is how deep candidates differ.
const depth = 4

// candidates returns values of a schema: for an object, one for each of its fields and the fields of these, with what
// the schema requires.
func (all podSchemas) candidates(path string, s podSchema, level int) (found []candidate) {
	if len(s.AllOf) > 0 {
		s = s.AllOf[0]
	}
	if s.Ref != "" {
		s = all[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	switch {
	case len(s.Enum) > 0:
		for _, value := range s.Enum {
			found = append(found, candidate{fmt.Sprintf("%s=%v", path, value), value})
		}
	case s.Type == "string":
		return []candidate{{path, controlplane.Missing}}
	case s.Type == "integer":
		return []candidate{{path, 1}}
	case s.Type == "boolean":
		return []candidate{{path, true}}
	case s.Type == "array":
		for _, item := range all.candidates(path, *s.Items, level) {
			found = append(found, candidate{item.path, []any{item.value}})
		}
	case s.Type == "object" && len(s.Properties) == 0:
		return []candidate{{path, map[string]any{controlplane.Missing: controlplane.Missing}}}
	case level < depth:
		return all.objects(path, s, level)
	}
	return found
}

func (all podSchemas) objects(path string, s podSchema, level int) (found []candidate) {
	required := map[string]any{}
	for _, name := range s.Required {
		if values := all.candidates(name, s.Properties[name], level+1); level > 0 && len(values) > 0 {
			required[name] = values[0].value
		}
	}
	if level > 0 && len(required) > 0 {
		found = append(found, candidate{path, required})
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if slices.Contains(s.Required, name) {
			continue
		}
		for _, c := range all.candidates(path+"."+name, s.Properties[name], level+1) {
			value := maps.Clone(required)
			value[name] = c.value
			found = append(found, candidate{c.path, value})
		}
	}
	return found
}

// celOf returns a value in the Common Expression Language.
func celOf(value any) string {
	switch v := value.(type) {
	case map[string]any:
		var entries []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			entries = append(entries, fmt.Sprintf("%q: dyn(%s)", key, celOf(v[key])))
		}
		return "{" + strings.Join(entries, ", ") + "}"
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, "dyn("+celOf(item)+")")
		}
		return "[" + strings.Join(items, ", ") + "]"
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprint(v)
	}
}

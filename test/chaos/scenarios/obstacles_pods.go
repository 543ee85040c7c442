package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

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
	spec, accepted := pods.Items[0].Spec, map[string]place{}
	values := schemas.candidates("Pod spec", schemas["io.k8s.api.core.v1.PodSpec"], 0)
	for i, c := range values {
		probe, patch := fmt.Sprintf("probe-%d", i), ""
		pod, err := podWith(namespace, probe, spec, c.value.(map[string]any), &patch)
		if err != nil {
			return nil, err
		}
		if s.Client.Create(ctx, pod) == nil {
			path := strings.Split(c.path, ".")
			kind := strings.Join(path[:min(len(path), 3)], ".") // For example "Pod spec.volumes.secret".
			accepted[probe] = mutation(kind, patch)
		}
	}
	fmt.Printf("obstacles: of %d values of fields of pods, the API server accepts %d", len(values), len(accepted))
	harness.Pause(ctx, 5*time.Second) // Until the kubelet has reported them.
	if err := s.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		isReady := slices.ContainsFunc(pods.Items[i].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		if isReady {
			delete(accepted, pods.Items[i].Name)
		}
	}
	fmt.Printf(", and %d hold a pod back\n", len(accepted))
	kinds := sets.Set[string]{}
	for _, probe := range slices.Sorted(maps.Keys(accepted)) {
		if p := accepted[probe]; !kinds.Has(p.name) {
			kinds.Insert(p.name)
			all = append(all, p)
		}
	}
	return all, nil
}

// podWith returns a pod with the fields, and the CEL expression of the patch that sets them.
func podWith(namespace, name string, spec corev1.PodSpec, fields map[string]any, patch *string) (*unstructured.Unstructured, error) {
	spec.NodeName = ""
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec})
	if err != nil {
		return nil, err
	}
	pod := &unstructured.Unstructured{Object: object}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	for field, value := range fields {
		*patch = jsonPatch("add", "/spec/"+field, celOf(value))
		if items, isList := value.([]any); isList {
			present, _, _ := unstructured.NestedSlice(object, "spec", field)
			value = append(present, items...)
			*patch = fmt.Sprintf("(has(object.spec.%s) ? %s : %s)", field, jsonPatch("add", "/spec/"+field+"/-", celOf(items[0])), *patch)
		}
		object["spec"].(map[string]any)[field] = value
	}
	return pod, nil
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
	paths, err := s.discovery.OpenAPIV3().Paths()
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

// Package oracle evaluates what scenarios do to an operator: the objects that they leave behind,
// the history of these objects, and the requests of the operator. It makes no requests itself.
package oracle

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

const echoKind = "Echo"

// Mask removes from an object what a comparison ignores.
type Mask func(kind string, object map[string]any)

// CompareAll ignores nothing.
func CompareAll(string, map[string]any) {}

// IgnoreStatus ignores the status, except which generation of its Echo it is about.
func IgnoreStatus(kind string, object map[string]any) {
	observed, found, _ := unstructured.NestedFieldNoCopy(object, "status", "observedGeneration")
	delete(object, "status")
	if kind == echoKind && found {
		object["status"] = map[string]any{"observedGeneration": observed}
	}
}

// IgnoreEchoStatus ignores the status of Echoes as IgnoreStatus does, but not that of children.
func IgnoreEchoStatus(kind string, object map[string]any) {
	if kind == echoKind {
		IgnoreStatus(kind, object)
	}
}

// State returns everything about the objects of a namespace that has to be the same in another
// namespace where the same happened.
func State(objects []client.Object, namespace string, mask Mask) (string, error) {
	names := map[types.UID]string{}
	for _, object := range objects {
		names[object.GetUID()] = childKey(kinds.Of(object), object.GetName())
	}
	var state strings.Builder
	for _, object := range objects {
		normal, err := normalize(object, names)
		if err != nil {
			return "", err
		}
		kind := kinds.Of(object)
		mask(kind, normal)
		text, err := yaml.Marshal(normal)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&state, "--- %s %s\n%s", kind, object.GetName(), text)
	}
	text := clusterIPs.ReplaceAllString(strings.ReplaceAll(state.String(), namespace, "NAMESPACE"), "-cluster-ips=IPS")
	return podName.ReplaceAllString(text, "$1-POD"), nil
}

// clusterIPs matches the argument of a verifier with the addresses that the API server assigned.
var clusterIPs = regexp.MustCompile(`-cluster-ips=[0-9a-f.:,]+`)

// podName matches the name of a pod or a ReplicaSet in a message.
var podName = regexp.MustCompile(`((?:echo|verify)-[a-z0-9]+)-[0-9a-f]{6,10}(-[a-z0-9]{5})?\b`)

// CheckEqual compares two states.
func CheckEqual(what, wantName, want, gotName, got string) error {
	if want == got {
		return nil
	}
	return fmt.Errorf("%s differ (-%s +%s):\n%s", what, wantName, gotName, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
}

// What normalize ignores in objects of every kind.
var (
	// volatileAnnotations count writes.
	volatileAnnotations = []string{"deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation", "kkloud.io/echo-generation"}
	// assignedFields are assigned by the API server.
	assignedFields = [][]string{{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "template", "metadata", "labels", children.ResponseLabel}}
	// statusFields are the only fields of a child's status that do not depend on timing.
	statusFields = []string{"observedGeneration", "replicas", "updatedReplicas", "availableReplicas", "loadBalancer"}
)

// normalize returns an object without what differs between any two runs: identities, times, and
// how often it was written. Names has the names of owners by their UID.
func normalize(object client.Object, names map[types.UID]string) (map[string]any, error) {
	normal, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	normal["metadata"] = normalMetadata(object, names)
	for _, field := range assignedFields {
		unstructured.RemoveNestedField(normal, field...)
	}
	status, _ := normal["status"].(map[string]any)
	relativeGeneration(status, object.GetGeneration())
	if kinds.Of(object) == echoKind {
		conditions, _ := status["conditions"].([]any)
		for _, c := range conditions {
			condition := c.(map[string]any)
			relativeGeneration(condition, object.GetGeneration())
			delete(condition, "lastTransitionTime")
		}
		return normal, nil
	}
	kept := map[string]any{}
	for _, field := range statusFields {
		if value, found := status[field]; found {
			kept[field] = value
		}
	}
	normal["status"] = kept
	return normal, nil
}

func normalMetadata(object client.Object, names map[types.UID]string) map[string]any {
	metadata := map[string]any{"name": object.GetName(), "labels": object.GetLabels()}
	annotations := maps.Clone(object.GetAnnotations())
	for _, name := range volatileAnnotations {
		delete(annotations, name)
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	owners := slices.Clone(object.GetOwnerReferences())
	for i := range owners {
		owners[i].UID = types.UID(names[owners[i].UID]) // Empty for an owner that does not exist.
	}
	if len(owners) > 0 {
		metadata["ownerReferences"] = owners
	}
	if object.GetDeletionTimestamp() != nil {
		metadata["deleting"] = true
	}
	return metadata
}

// relativeGeneration replaces observedGeneration by its distance from the generation.
func relativeGeneration(status map[string]any, generation int64) {
	if observed, ok := status["observedGeneration"].(int64); ok {
		status["observedGeneration"] = observed - generation
	}
}

// operatorManager is the prefix of the field manager of the operator's program.
const operatorManager = "manager"

// CheckUntouched checks that the operator did not write an object that its Echo does not control.
// Only a controller of Kubernetes may have written its status.
func CheckUntouched(before, now client.Object) error {
	if before.GetResourceVersion() == now.GetResourceVersion() {
		return nil
	}
	changed := Findingf(now, "not controlled by the Echo, want no change; was %+v, is %+v", before, now)
	for _, entry := range now.GetManagedFields() {
		if strings.HasPrefix(entry.Manager, operatorManager) {
			return changed
		}
	}
	live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(now)
	if err != nil {
		return err
	}
	// A kind without this field has no controller that writes its status.
	if _, hasController, _ := unstructured.NestedFieldNoCopy(live, "status", "observedGeneration"); !hasController {
		return changed
	}
	was, err := State([]client.Object{before}, before.GetNamespace(), IgnoreStatus)
	if err != nil {
		return err
	}
	is, err := State([]client.Object{now}, now.GetNamespace(), IgnoreStatus)
	if err == nil && was != is {
		err = changed
	}
	return err
}

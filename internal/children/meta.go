// Package children shapes the objects that an Echo owns.
//
// Each shape function sets, on an empty or a live object, exactly the fields that the
// operator owns, and leaves every other field as it is: what the API server defaulted,
// and what others added. Where the API server would default an owned field, the function
// sets that very value. So a live object that a shape function does not change needs no write.
package children

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// The label by which the operator's caches, and people, find what it manages.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "echo-operator"
)

// EchoLabel holds the Echo's name on every child and pod. It alone selects the pods:
// selectors cannot change, so nothing that may change between versions belongs into one.
const EchoLabel = "kkloud.io/echo"

// generationAnnotation holds, on every child, the generation of the Echo that it was last
// written for.
const generationAnnotation = "kkloud.io/echo-generation"

// SetGeneration notes on a child for which generation of its Echo it is written.
func SetGeneration(child metav1.Object, generation int64) {
	annotations := child.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[generationAnnotation] = strconv.FormatInt(generation, 10)
	child.SetAnnotations(annotations)
}

// Generation returns for which generation of its Echo the child was last written, or 0 where
// it does not say.
func Generation(child metav1.Object) int64 {
	generation, err := strconv.ParseInt(child.GetAnnotations()[generationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// Name returns the name of every child of the Echo.
func Name(echo *echov1.Echo) string {
	return "echo-" + echo.Name
}

// Selector returns the labels that select the Echo's pods.
func Selector(echo *echov1.Echo) labels.Set {
	return labels.Set{EchoLabel: echo.Name}
}

func ownedLabels(echo *echov1.Echo) labels.Set {
	return labels.Merge(Selector(echo), labels.Set{
		ManagedByLabel:                ManagedBy,
		"app.kubernetes.io/name":      "echo",
		"app.kubernetes.io/instance":  echo.Name,
		"app.kubernetes.io/component": "server",
	})
}

// setMeta sets the labels and the controller reference of a child. A reference that is there
// is left as it is: a cluster that protects owner references lets nobody change one who may
// not delete the child.
func setMeta(child metav1.Object, echo *echov1.Echo) {
	child.SetLabels(labels.Merge(child.GetLabels(), ownedLabels(echo)))
	if !metav1.IsControlledBy(child, echo) {
		owner := *metav1.NewControllerRef(echo, echov1.GroupVersion.WithKind("Echo"))
		child.SetOwnerReferences(append(child.GetOwnerReferences(), owner))
	}
}

// upsert replaces the first item that matches, or appends.
func upsert[T any](items []T, item T, matches func(T) bool) []T {
	for i := range items {
		if matches(items[i]) {
			items[i] = item
			return items
		}
	}
	return append(items, item)
}

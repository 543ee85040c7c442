// Package children shapes the objects that an Echo owns.
//
// Each shape function sets, on an empty or a live object, exactly the fields that the
// operator owns, and leaves every other field as it is: what the API server defaulted,
// and what others added. Where the API server would default an owned field, the function
// sets that very value. So a live object that a shape function does not change needs no write.
package children

import (
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

// setMeta sets the labels and the controller reference of a child.
func setMeta(child metav1.Object, echo *echov1.Echo) {
	child.SetLabels(labels.Merge(child.GetLabels(), ownedLabels(echo)))
	owner := *metav1.NewControllerRef(echo, echov1.GroupVersion.WithKind("Echo"))
	child.SetOwnerReferences(upsert(child.GetOwnerReferences(), owner,
		func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID }))
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

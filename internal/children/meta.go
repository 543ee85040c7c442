// Package children builds the desired state of the objects that an Echo owns.
//
// For each kind there is a mutate function. On an empty or a live object, it sets exactly the
// leaf fields that the operator owns. It does not change other fields, also not in the same
// struct or list: defaults of the API server, and what admission or an external writer adds. If
// the API server defaults an owned field, the function sets it to that default. So a live object
// that a mutate function does not change needs no write.
package children

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// The label that selects the objects that the operator manages. The operator's caches use it.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedBy      = "echo-operator"
)

// EchoLabel contains the name of the Echo on every child and pod. It is the only label in the
// pod selector: selectors are immutable, so they must not contain labels that may change
// between versions.
const EchoLabel = "kkloud.io/echo"

// generationAnnotation contains, on every child, the generation of the Echo for which the
// operator last wrote the child.
const generationAnnotation = "kkloud.io/echo-generation"

// RetryAnnotation contains, on a Deployment, when the operator last had the pods created again for which a quota had no
// room.
const RetryAnnotation = "kkloud.io/retried-pods-at"

// SetEchoGeneration records on a child for which generation of its Echo it is written.
func SetEchoGeneration(child metav1.Object, generation int64) {
	recorded := labels.Set{generationAnnotation: strconv.FormatInt(generation, 10)}
	child.SetAnnotations(labels.Merge(child.GetAnnotations(), recorded))
}

// EchoGeneration returns for which generation of its Echo the child was last written, or 0 if the
// child has no valid annotation.
func EchoGeneration(child metav1.Object) int64 {
	generation, err := strconv.ParseInt(child.GetAnnotations()[generationAnnotation], 10, 64)
	if err != nil {
		return 0
	}
	return generation
}

// IsOrphan reports whether an object under the child's name is a child that the operator wrote for
// an Echo of this name. Without a controller, it was restored from a backup or orphaned on purpose.
func IsOrphan(object metav1.Object, echo *echov1.Echo) bool {
	labels := object.GetLabels()
	return metav1.GetControllerOf(object) == nil && EchoGeneration(object) > 0 &&
		labels[ManagedByLabel] == ManagedBy && labels[EchoLabel] == echo.Name
}

const namePrefix = "echo-"

// Name returns the name of the children of the Echo, except for its verifier.
func Name(echo *echov1.Echo) string {
	return namePrefix + echo.Name
}

// Selector returns the labels that select the Echo's pods.
func Selector(echo *echov1.Echo) labels.Set {
	return labels.Set{EchoLabel: echo.Name}
}

// VerifierName returns the name of the verifier of the Echo.
func VerifierName(echo *echov1.Echo) string {
	return verifierPrefix + echo.Name
}

// EchoName returns the name of the Echo to which a child with this name belongs, if any.
func EchoName(childName string) (string, bool) {
	if name, found := strings.CutPrefix(childName, namePrefix); found {
		return name, true
	}
	return strings.CutPrefix(childName, verifierPrefix)
}

// The components of an Echo.
const (
	serverComponent   = "server"
	verifierComponent = "verifier"
)

func recommendedLabels(echo *echov1.Echo, component string) labels.Set {
	name := "echo"
	if component == verifierComponent {
		name = "echo-verifier"
	}
	return labels.Set{
		ManagedByLabel:                ManagedBy,
		"app.kubernetes.io/name":      name,
		"app.kubernetes.io/instance":  echo.Name,
		"app.kubernetes.io/component": component,
	}
}

// setMeta sets the metadata of a child. It does not change an existing controller reference: a
// cluster that protects owner references requires permission to delete the child for that.
func setMeta(child metav1.Object, echo *echov1.Echo, component string) {
	setInherited(child, echo.Spec.InheritedMetadata)
	child.SetLabels(labels.Merge(child.GetLabels(), labels.Merge(Selector(echo), recommendedLabels(echo, component))))
	if !metav1.IsControlledBy(child, echo) {
		owner := *metav1.NewControllerRef(echo, echov1.GroupVersion.WithKind("Echo"))
		child.SetOwnerReferences(append(child.GetOwnerReferences(), owner))
	}
}

// ensureItem returns the first item that matches. It appends the given item if none does.
func ensureItem[T any](items *[]T, item T, matches func(T) bool) *T {
	i := slices.IndexFunc(*items, matches)
	if i < 0 {
		i = len(*items)
		*items = append(*items, item)
	}
	return &(*items)[i]
}

// withoutCopies removes items that are equal to an earlier item with the same key. Before the operator
// adds an item to a list, it removes the copies of others: admission that changes each item of the
// operator would otherwise make the list longer with each write.
func withoutCopies[T any, K comparable](items []T, key func(T) K) []T {
	seen := map[K]T{}
	return slices.DeleteFunc(items, func(item T) bool {
		earlier, found := seen[key(item)]
		if !found {
			seen[key(item)] = item
		}
		return found && equality.Semantic.DeepEqual(earlier, item)
	})
}

// ensure returns the struct behind a pointer. It creates a missing one.
func ensure[T any](pointer **T) *T {
	if *pointer == nil {
		*pointer = new(T)
	}
	return *pointer
}

// dropEmpty removes the struct behind a pointer if it is empty.
func dropEmpty[T any](pointer **T) {
	if equality.Semantic.DeepEqual(*pointer, new(T)) {
		*pointer = nil
	}
}

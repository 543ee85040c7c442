package informers

import (
	"encoding/json"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// maxCachedSize is the maximum size of a cached child in bytes. Children of the default server are
// smaller, also with the longest message, pod settings and metadata.
const maxCachedSize = 224 << 10

// transformChild reduces the memory of a cached object: a child shares values with the others, and anything else
// becomes a stub.
func transformChild(kind children.Kind, object client.Object) client.Object {
	object.SetManagedFields(nil)
	if !isChild(object) || size(object) > maxCachedSize {
		return stub(kind, object)
	}
	children.Share(object)
	return object
}

// size returns the size of an object in bytes, or a larger number.
func size(object client.Object) int {
	if sized, ok := object.(interface{ Size() int }); ok {
		return sized.Size()
	}
	encoding, _ := json.Marshal(object) // Of a type of the Gateway API.
	return len(encoding)
}

// isChild reports whether the object may be a child: at most two objects of a kind are, for each Echo.
func isChild(object client.Object) bool {
	name, found := children.EchoName(object.GetName())
	if controller := metav1.GetControllerOf(object); controller != nil {
		return found && controller.Kind == "Echo" && controller.Name == name
	}
	return found && object.GetLabels()[children.EchoLabel] == name
}

// stub reduces an object to what identifies it. Users can create many of them, so a stub uses as
// little memory as possible: it has a controller only if it is a child, which is too large.
func stub(kind children.Kind, object client.Object) client.Object {
	reduced := client.Object(kind.New())
	reduced.SetNamespace(unique.Make(object.GetNamespace()).Value())
	reduced.SetName(object.GetName())
	reduced.SetResourceVersion(object.GetResourceVersion())
	reduced.SetDeletionTimestamp(object.GetDeletionTimestamp())
	if controller := metav1.GetControllerOf(object); controller != nil && isChild(object) {
		reduced.SetOwnerReferences([]metav1.OwnerReference{*controller})
	}
	return reduced
}

// IsStub reports whether an object of the cache is a stub: all other objects have the operator's label.
func IsStub(object client.Object) bool { return len(object.GetLabels()) == 0 }

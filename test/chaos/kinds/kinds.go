// Package kinds derives what the campaign has to know about kinds of objects from
// children.Kinds: a new child kind is added there, and nowhere in the campaign.
package kinds

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// Resources of Echoes and pods. Those of children are in children.Kinds.
const (
	Echoes     = "echoes"
	EchoStatus = "echoes/status"
	pods       = "pods"
)

var scheme = controlplane.Scheme()

// Lists returns an empty list for each kind that the operator writes: Echoes first, then their
// children.
func Lists() []client.ObjectList {
	return append([]client.ObjectList{&echov1.EchoList{}}, ChildLists()...)
}

// ChildLists returns an empty list for each kind of child.
func ChildLists() (lists []client.ObjectList) {
	for _, kind := range children.WatchedKinds() {
		list, err := scheme.New(kind.Resource.GroupVersion().WithKind(kind.ObjectKind + "List"))
		if err != nil {
			panic(err) // The scheme includes every kind, so this is a programming error.
		}
		lists = append(lists, list.(client.ObjectList))
	}
	return lists
}

// Items returns the objects of a list.
func Items(list client.ObjectList) ([]client.Object, error) {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("read the items of a %T: %w", list, err)
	}
	objects := make([]client.Object, len(items))
	for i, item := range items {
		objects[i] = item.(client.Object)
	}
	return objects, nil
}

// Of returns the name of the kind of child, for example "Deployment", or the kind of another object. It panics if the scheme does not
// include the type, which is a programming error.
func Of(object client.Object) string {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		panic(err)
	}
	for _, child := range children.Kinds {
		if child.Verifier && child.ObjectKind == kind.Kind && strings.HasPrefix(object.GetName(), ChildName(child, "")) {
			return child.Name
		}
	}
	return kind.Kind
}

// Watched returns the resources that an operator watches.
func Watched() []string {
	resources := []string{Echoes}
	for _, kind := range children.WatchedKinds() {
		resources = append(resources, kind.Resource.Resource)
	}
	return append(resources, pods)
}

// IsWritten reports whether an operator writes the resource to reconcile an Echo. Leases, events
// and reviews do not belong to an Echo.
func IsWritten(resource string) bool {
	return resource == Echoes || resource == EchoStatus ||
		slices.ContainsFunc(children.Kinds, func(kind children.Kind) bool { return kind.Resource.Resource == resource })
}

// Required returns the kinds of which every Echo has a child.
func Required() []children.Kind {
	return slices.DeleteFunc(slices.Clone(children.Kinds), func(kind children.Kind) bool { return kind.Conditional })
}

// ByName returns the child kind of that name. It panics if there is none, which is a programming
// error.
func ByName(name string) children.Kind {
	return children.Kinds[slices.IndexFunc(children.Kinds, func(kind children.Kind) bool { return kind.Name == name })]
}

// New returns an empty child.
func New(kind children.Kind) client.Object { return kind.New() }

// ChildName returns the name of an Echo's child.
func ChildName(kind children.Kind, echo string) string {
	e := &echov1.Echo{}
	e.Name = echo
	return kind.ChildName(e)
}

// ChildNames returns the names of an Echo's children, each once. Those of ReplicaSets and pods start with them.
func ChildNames(echo string) (names []string) {
	for _, kind := range children.Kinds {
		if name := ChildName(kind, echo); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// ServerName returns the name of the children of an Echo, except for its verifier.
func ServerName(echo string) string { return ChildName(children.Kind{}, echo) }

// Servers returns the kinds of children that the suites change and reject. Verifiers are written only
// after the rollout of the others, so that the suites do not apply to them.
func Servers() []children.Kind {
	return slices.DeleteFunc(slices.Clone(children.Kinds), func(kind children.Kind) bool { return kind.Verifier })
}

// Mutate changes a child to the desired state of its Echo, as an operator under test does.
func Mutate(child client.Object, echo *echov1.Echo) {
	ByName(Of(child)).Mutate(child, echo, inputs(child))
}

// inputs returns those of an operator under test, for the child's Service: a verifier names its
// cluster IPs.
func inputs(child client.Object) children.Inputs {
	in := Inputs()
	var pod corev1.PodSpec
	switch o := child.(type) {
	case *appsv1.Deployment:
		pod = o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		pod = o.Spec.Template.Spec
	}
	for _, container := range pod.Containers {
		for _, arg := range container.Args {
			if ips, found := strings.CutPrefix(arg, "-cluster-ips="); found {
				in.ClusterIPs = strings.Split(ips, ",")
			}
		}
	}
	return in
}

// Inputs returns what the desired state of children depends on beside their Echo.
func Inputs() children.Inputs {
	return children.Inputs{ServerImage: controlplane.ServerImage, VerifierImage: controlplane.VerifierImage}
}

// JSON returns an object as JSON represents it. It panics if the object has no such representation,
// which is a programming error.
func JSON(object client.Object) map[string]any {
	plain, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err)
	}
	return plain
}

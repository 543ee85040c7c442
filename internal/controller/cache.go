package controller

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// CacheOptions limits the cache to the given namespaces (none means all) and to objects with the
// operator's label, so that other Deployments, Services and pods use no memory. Users can set that
// label, so objects that are not children are reduced to stubs. The cache does not contain kinds that
// the cluster may not serve.
func CacheOptions(namespaces []string) cache.Options {
	options := cacheOptions(namespaces)
	options.ByObject[&echov1.Echo{}] = cache.ByObject{Transform: slimEcho}
	options.ByObject[&corev1.Pod{}] = cache.ByObject{Label: managed, Transform: slimPod}
	for _, kind := range children.DifferentObjectKinds() {
		if !kind.OptionalAPI {
			addKind(options, kind)
		}
	}
	return options
}

// kindCacheOptions are CacheOptions for a cache of one kind of child.
func kindCacheOptions(kind children.Kind, namespaces []string) cache.Options {
	options := cacheOptions(namespaces)
	addKind(options, kind)
	return options
}

// managed selects the objects with the operator's label.
var managed = labels.SelectorFromSet(labels.Set{children.ManagedByLabel: children.ManagedBy})

func addKind(options cache.Options, kind children.Kind) {
	options.ByObject[kind.New()] = cache.ByObject{Label: managed, Transform: func(object any) (any, error) {
		return slimChild(kind, object), nil
	}}
}

func cacheOptions(namespaces []string) cache.Options {
	options := cache.Options{ReaderFailOnMissingInformer: true, ByObject: map[client.Object]cache.ByObject{}}
	for _, namespace := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options
}

// slimEcho removes metadata that the operator does not use, and shares the texts of conditions, which
// are equal in most Echoes. A write of the status does not change metadata.
func slimEcho(object any) (any, error) {
	if echo, ok := object.(*echov1.Echo); ok {
		echo.ManagedFields, echo.Labels, echo.Annotations = nil, nil, nil
		for i := range echo.Status.Conditions {
			c := &echo.Status.Conditions[i]
			for _, text := range []*string{&c.Type, (*string)(&c.Status), &c.Reason, &c.Message} {
				*text = unique.Make(*text).Value()
			}
		}
	}
	return object, nil
}

// maxCachedSize is the maximum size of a cached child in bytes. Children of the default server are
// smaller, also with the longest message and pod settings.
const maxCachedSize = 160 << 10

// slimChild reduces the memory of a cached object: a child shares values with the others, and any
// other object becomes a stub.
func slimChild(kind children.Kind, cached any) any {
	object, ok := cached.(client.Object)
	if !ok {
		return cached // The last known state of a deleted object, which is slim already.
	}
	object.SetManagedFields(nil)
	switch o := cached.(type) {
	case *gatewayv1.HTTPRoute:
		slimRoute(o)
	case *policyv1.PodDisruptionBudget:
		o.Status = policyv1.PodDisruptionBudgetStatus{}
	}
	if !isChild(object) || size(object) > maxCachedSize {
		return stub(kind, object)
	}
	children.ShareMeta(object)
	children.Share(object)
	return cached
}

// size returns the size of an object in bytes, or a larger number.
func size(object client.Object) int {
	if sized, ok := object.(interface{ Size() int }); ok {
		return sized.Size()
	}
	encoding, err := json.Marshal(object)
	if err != nil {
		return math.MaxInt
	}
	return len(encoding)
}

// maxAnswer is the maximum number of characters of a parent's message in the cache.
const maxAnswer = 512

// slimRoute reduces the answers of parents, which are text of third parties, to what the status needs.
func slimRoute(route *gatewayv1.HTTPRoute) {
	for i := range route.Status.Parents {
		parent := &route.Status.Parents[i]
		parent.Conditions = slices.DeleteFunc(parent.Conditions, func(c metav1.Condition) bool {
			return c.Type != string(gatewayv1.RouteConditionAccepted) && c.Type != string(gatewayv1.RouteConditionResolvedRefs)
		})
		for j := range parent.Conditions {
			parent.Conditions[j].Message = status.Truncate(parent.Conditions[j].Message, maxAnswer)
		}
	}
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

// isStub reports whether an object of the cache is a stub: all other objects have the operator's label.
func isStub(object client.Object) bool { return len(object.GetLabels()) == 0 }

// echoOfChild returns the Echo to which an object with its name belongs. Its owner reference and
// its labels may be missing.
func echoOfChild(_ context.Context, child client.Object) []reconcile.Request {
	echo, found := ownerByName(child)
	if !found {
		return nil
	}
	return []reconcile.Request{{NamespacedName: echo}}
}

func ownerByName(child client.Object) (echo types.NamespacedName, found bool) {
	name, found := children.EchoName(child.GetName())
	return types.NamespacedName{Namespace: child.GetNamespace(), Name: name}, found
}

// RESTMapper maps the kinds that the operator uses without discovery. So the setup makes no API
// calls, and only the cache waits for an unavailable API server or a missing CRD.
func RESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(kind string, resource schema.GroupVersionResource) {
		version := resource.GroupVersion()
		singular := version.WithResource(strings.ToLower(kind))
		for _, name := range []string{kind, kind + "List"} {
			mapper.AddSpecific(version.WithKind(name), resource, singular, meta.RESTScopeNamespace)
		}
	}
	add("Echo", echov1.GroupVersion.WithResource("echoes"))
	add("Pod", corev1.SchemeGroupVersion.WithResource("pods"))
	add("ReplicaSet", appsv1.SchemeGroupVersion.WithResource("replicasets"))
	for _, kind := range children.DifferentObjectKinds() {
		add(kind.ObjectKind, kind.Resource)
	}
	return mapper
}

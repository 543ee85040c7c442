// Package informers fills the cache of the manager. A cache of everything would use memory for each object of the
// cluster, so it has only the objects with the operator's label, without the fields that the operator does not use.
// A cluster may not serve a kind, or serve it only later, so the cache has an informer of it only meanwhile. And one of
// several namespaces may not be readable, so neither the cache nor the manager waits for that one.
package informers

import (
	"reflect"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// CacheOptions limits the cache to the namespaces and to objects with the
// operator's label, so that other Deployments, Services and pods use no memory. Users can set that
// label, so objects that are not children are reduced to stubs.
func CacheOptions(namespaces *Namespaces, optional *Optional) cache.Options {
	managed := labels.SelectorFromSet(labels.Set{children.ManagedByLabel: children.ManagedBy})
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&echov1.Echo{}: {Transform: slimEcho},
			&corev1.Pod{}:  {Label: managed, Transform: slimPod},
		},
		NewInformer: func(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			i := newInformer(lw, object, resync, indexers)
			if reflect.TypeOf(object) == reflect.TypeOf(optional.kind.New()) {
				optional.own(i)
			} else {
				namespaces.own(i)
			}
			return i
		},
	}
	for _, kind := range children.DifferentObjectKinds() {
		options.ByObject[kind.New()] = cache.ByObject{Label: managed, Transform: func(object any) (any, error) {
			return slimChild(kind, object), nil
		}}
	}
	for object, kind := range options.ByObject {
		options.ByObject[object] = inNamespaces(namespaces.watched, kind)
	}
	return options
}

// inNamespaces limits the informers of a kind to the namespaces. None means all.
func inNamespaces(namespaces []string, kind cache.ByObject) cache.ByObject {
	transform := kind.Transform
	if len(namespaces) == 0 {
		kind.Transform = inNamespace(metav1.NamespaceAll, transform)
		return kind
	}
	kind.Namespaces = map[string]cache.Config{}
	for _, namespace := range namespaces {
		kind.Namespaces[namespace] = cache.Config{Transform: inNamespace(namespace, transform)}
	}
	return kind
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

// Package informers fills the cache of the manager. A cache of everything would use memory for each object of the
// cluster, so it has only the objects with the operator's label, without the fields that the operator does not use.
package informers

import (
	"context"
	"fmt"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// CacheOptions limits the cache to the namespaces, unless there are none, and to objects with the
// operator's label, so that other Deployments, Services and pods use no memory. Users can set that
// label, so objects that are not children are reduced to stubs.
func CacheOptions(namespaces []string, optional *Optional) cache.Options {
	managed := labels.SelectorFromSet(labels.Set{children.ManagedByLabel: children.ManagedBy})
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultWatchErrorHandler:    optional.WatchFailed,
		ByObject: map[client.Object]cache.ByObject{
			&echov1.Echo{}: {Transform: transformEcho},
			&corev1.Pod{}:  {Label: managed, Transform: func(pod any) (any, error) { return status.TransformPod(pod.(*corev1.Pod)), nil }},
		},
	}
	for _, kind := range children.WatchedKinds() {
		options.ByObject[kind.New()] = cache.ByObject{Label: managed, Transform: func(object any) (any, error) {
			return transformChild(kind, object.(client.Object)), nil
		}}
	}
	if len(namespaces) > 0 {
		options.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range namespaces {
			options.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	return options
}

// transformEcho removes metadata that the operator does not use, and shares the texts of conditions, which
// are equal in most Echoes. A write of the status does not change metadata.
func transformEcho(object any) (any, error) {
	echo := object.(*echov1.Echo)
	echo.ManagedFields, echo.Labels, echo.Annotations = nil, nil, nil
	for i := range echo.Status.Conditions {
		c := &echo.Status.Conditions[i]
		for _, text := range []*string{&c.Type, (*string)(&c.Status), &c.Reason, &c.Message} {
			*text = unique.Make(*text).Value()
		}
	}
	return echo, nil
}

// IndexPods adds indexes of pods by the Echo that they serve or verify. The name of an index is that of the label.
func IndexPods(ctx context.Context, indexer client.FieldIndexer) error {
	for _, label := range []string{children.EchoLabel, children.VerifiesLabel} {
		err := indexer.IndexField(ctx, &corev1.Pod{}, label, func(pod client.Object) []string {
			if name := pod.GetLabels()[label]; name != "" {
				return []string{name}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index pods by Echo: %w", err)
		}
	}
	return nil
}

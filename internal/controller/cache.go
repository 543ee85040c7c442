package controller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// CacheOptions limits the cache to the given namespaces (none means all), and to the
// children of Echoes: a cluster's other Deployments, Services and pods cost nothing.
func CacheOptions(namespaces []string) cache.Options {
	managed := labels.SelectorFromSet(labels.Set{children.ManagedByLabel: children.ManagedBy})
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.Deployment{}:            {Label: managed},
			&corev1.Service{}:               {Label: managed},
			&policyv1.PodDisruptionBudget{}: {Label: managed},
			&corev1.Pod{}:                   {Label: managed, Transform: slimPod, UnsafeDisableDeepCopy: new(true)},
		},
	}
	for _, namespace := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options
}

// ClientOptions makes a read from the cache wait for the writes that went before it, so
// that no pass acts on a view from before the last one. The library supports that for one
// namespace or all of them; with several, a pass may need a retry.
func ClientOptions(namespaces []string) client.Options {
	return client.Options{Cache: &client.CacheOptions{
		EnableReadYourWritesConsistency: new(len(namespaces) <= 1),
	}}
}

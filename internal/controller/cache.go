package controller

import (
	"context"
	"errors"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// CacheOptions limits the cache to the given namespaces (none means all) and to the children
// of Echoes, so that other Deployments, Services and pods use no memory.
func CacheOptions(namespaces []string) cache.Options {
	managed := labels.SelectorFromSet(labels.Set{children.ManagedByLabel: children.ManagedBy})
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: managed, Transform: slimPod},
		},
	}
	for _, kind := range children.Kinds {
		byObject := cache.ByObject{Label: managed}
		if kind.Name == "Deployment" {
			byObject.Transform = slimDeployment
		}
		options.ByObject[kind.New()] = byObject
	}
	for _, namespace := range namespaces {
		if options.DefaultNamespaces == nil {
			options.DefaultNamespaces = map[string]cache.Config{}
		}
		options.DefaultNamespaces[namespace] = cache.Config{}
	}
	return options
}

// slimDeployment reduces the memory of a cached Deployment: it shares values with the others.
func slimDeployment(object any) (any, error) {
	if deployment, ok := object.(*appsv1.Deployment); ok {
		deployment.ManagedFields = nil
		children.Share(deployment)
	}
	return object, nil
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
	for _, kind := range children.Kinds {
		add(kind.Name, kind.Resource)
	}
	return mapper
}

// ClientOptions makes a read from the cache wait until the cache contains the client's earlier
// writes, so that a reconciliation does not act on a stale snapshot. controller-runtime supports
// this for one namespace or for all. With several, a reconciliation may need a retry.
func ClientOptions(namespaces []string) client.Options {
	return client.Options{Cache: &client.CacheOptions{
		EnableReadYourWritesConsistency: new(len(namespaces) <= 1),
	}}
}

// cacheWaitTimeout limits how long a read waits for the client's earlier writes.
const cacheWaitTimeout = time.Second

// NewClient returns a client whose reads wait for at most cacheWaitTimeout. The unlimited wait of
// controller-runtime never ends if an object was deleted while the watch was interrupted,
// because the cache then never contains the write. Correctness does not depend on the wait: it
// only saves requests that would fail.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return boundedWaitClient{Client: c, cache: options.Cache.Reader}, nil
}

// boundedWaitClient reads from the cache without waiting after cacheWaitTimeout.
type boundedWaitClient struct {
	client.Client
	cache client.Reader
}

// Get implements client.Reader.
func (c boundedWaitClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.read(ctx, func(ctx context.Context, reader client.Reader) error { return reader.Get(ctx, key, object, options...) })
}

// List implements client.Reader.
func (c boundedWaitClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.read(ctx, func(ctx context.Context, reader client.Reader) error { return reader.List(ctx, list, options...) })
}

func (c boundedWaitClient) read(ctx context.Context, from func(context.Context, client.Reader) error) error {
	waiting, stop := context.WithTimeout(ctx, cacheWaitTimeout)
	defer stop()
	err := from(waiting, c.Client)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return from(ctx, c.cache)
	}
	return err
}

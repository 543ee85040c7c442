package controller

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// CacheOptions limits the cache to the given namespaces (none means all), and to the
// children of Echoes: a cluster's other Deployments, Services and pods cost nothing. Children
// and pods are read without a copy: a pass changes only copies of its own.
func CacheOptions(namespaces []string) cache.Options {
	managed := labels.SelectorFromSet(labels.Set{children.ManagedByLabel: children.ManagedBy})
	options := cache.Options{
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Label: managed, UnsafeDisableDeepCopy: new(true), Transform: slimPod},
		},
	}
	for _, kind := range children.Kinds {
		byObject := cache.ByObject{Label: managed, UnsafeDisableDeepCopy: new(true)}
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

// slimDeployment keeps once what most Deployments have in common.
func slimDeployment(object any) (any, error) {
	if deployment, ok := object.(*appsv1.Deployment); ok {
		deployment.ManagedFields = nil
		children.Share(deployment)
	}
	return object, nil
}

// RESTMapper knows what the operator works with. So nothing is asked for before the cache
// starts, which waits for an API server that is away, and for a CRD that is not there yet.
func RESTMapper(scheme *runtime.Scheme) (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	for object := range CacheOptions(nil).ByObject {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			return nil, err
		}
		plural, singular := meta.UnsafeGuessKindToResource(kind)
		add(mapper, kind, plural, singular)
	}
	version := echov1.GroupVersion
	add(mapper, version.WithKind("Echo"), version.WithResource("echoes"), version.WithResource("echo"))
	return mapper, nil
}

// add makes a kind and its list known.
func add(mapper *meta.DefaultRESTMapper, kind schema.GroupVersionKind, plural, singular schema.GroupVersionResource) {
	mapper.AddSpecific(kind, plural, singular, meta.RESTScopeNamespace)
	mapper.AddSpecific(kind.GroupVersion().WithKind(kind.Kind+"List"), plural, singular, meta.RESTScopeNamespace)
}

// ClientOptions makes a read from the cache wait for the writes that went before it, so
// that no pass acts on a view from before the last one. The library supports that for one
// namespace or all of them; with several, a pass may need a retry.
func ClientOptions(namespaces []string) client.Options {
	return client.Options{Cache: &client.CacheOptions{
		EnableReadYourWritesConsistency: new(len(namespaces) <= 1),
	}}
}

// catchUp is how long a read waits for the writes that went before it.
const catchUp = time.Second

// NewClient makes a client whose reads do not wait for ever: where an object was deleted
// while a watch was away, nothing tells that its write has been seen. Nothing relies on the
// wait; it only saves requests in vain.
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return impatientClient{Client: c, cache: options.Cache.Reader}, nil
}

type impatientClient struct {
	client.Client
	cache client.Reader
}

// Get implements client.Reader.
func (c impatientClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	return c.read(ctx, func(ctx context.Context, reader client.Reader) error { return reader.Get(ctx, key, object, options...) })
}

// List implements client.Reader.
func (c impatientClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.read(ctx, func(ctx context.Context, reader client.Reader) error { return reader.List(ctx, list, options...) })
}

func (c impatientClient) read(ctx context.Context, from func(context.Context, client.Reader) error) error {
	waiting, stop := context.WithTimeout(ctx, catchUp)
	defer stop()
	err := from(waiting, c.Client)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return from(ctx, c.cache)
	}
	return err
}

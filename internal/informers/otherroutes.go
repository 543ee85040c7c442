package informers

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// OtherRoutes is a source of events of HTTPRoutes that are not children. It has one watch for each namespace with Echoes that
// follow some, whatever their number, and keeps nothing but names and generations. Before Start, it watches none.
type OtherRoutes struct {
	// Cluster is that of the manager.
	Cluster cluster.Cluster

	mu         sync.Mutex
	ctx        context.Context
	queue      workqueue.TypedRateLimitingInterface[reconcile.Request]
	namespaces map[string]followers
}

// followers are the Echoes of a namespace that follow HTTPRoutes, with the names of these, and the end of the watch.
type followers struct {
	routes map[types.NamespacedName][]string
	end    context.CancelFunc
}

// Start implements source.Source.
func (o *OtherRoutes) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx, o.queue, o.namespaces = ctx, queue, map[string]followers{}
	return nil
}

// Follow enqueues the Echo when one of the named routes of its namespace is created, changed or deleted, and no longer for
// any other route.
func (o *OtherRoutes) Follow(echo types.NamespacedName, names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, isWatched := o.namespaces[echo.Namespace]
	switch {
	case o.queue == nil || !isWatched && len(names) == 0:
	case len(names) == 0:
		if delete(f.routes, echo); len(f.routes) == 0 {
			f.end()
			delete(o.namespaces, echo.Namespace)
		}
	default:
		if !isWatched {
			ctx, end := context.WithCancel(o.ctx)
			f = followers{map[types.NamespacedName][]string{}, end}
			o.namespaces[echo.Namespace] = f
			go o.watch(ctx, echo.Namespace)
		}
		f.routes[echo] = names
	}
}

// requests returns the Echoes that follow a route.
func (o *OtherRoutes) requests(_ context.Context, route client.Object) (requests []reconcile.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for echo, names := range o.namespaces[route.GetNamespace()].routes {
		if slices.Contains(names, route.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: echo})
		}
	}
	return requests
}

// routeChanged drops the events of changes of the status, which Gateways write.
var routeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}}

func (o *OtherRoutes) watch(ctx context.Context, namespace string) {
	kind, route := children.OptionalKind(), &metav1.PartialObjectMetadata{}
	route.SetGroupVersionKind(kind.Resource.GroupVersion().WithKind(kind.ObjectKind))
	routes, err := cache.New(o.Cluster.GetConfig(), cache.Options{
		HTTPClient: o.Cluster.GetHTTPClient(), Scheme: o.Cluster.GetScheme(), Mapper: o.Cluster.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{namespace: {}},
		DefaultTransform: func(route any) (any, error) {
			m := route.(*metav1.PartialObjectMetadata) //nolint:forcetypeassert // The cache has one type.
			m.ObjectMeta = metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, Generation: m.Generation, ResourceVersion: m.ResourceVersion}
			return m, nil
		},
	})
	if err == nil {
		err = source.Kind[client.Object](routes, route, handler.EnqueueRequestsFromMapFunc(o.requests), routeChanged).Start(ctx, o.queue)
	}
	if err == nil {
		err = routes.Start(ctx)
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Watch the HTTPRoutes that Echoes override", "namespace", namespace)
	}
}

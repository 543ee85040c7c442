package informers

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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

// OtherRoutes is a source of events of HTTPRoutes that are not children. It watches each by its name, and keeps only
// metadata. Before Start, it watches none.
type OtherRoutes struct {
	// Cluster is that of the manager.
	Cluster cluster.Cluster

	mu       sync.Mutex
	ctx      context.Context
	queue    workqueue.TypedRateLimitingInterface[reconcile.Request]
	followed map[types.NamespacedName]following
}

// following is which HTTPRoutes an Echo follows, and the end of their watches.
type following struct {
	names []string
	end   context.CancelFunc
}

// Start implements source.Source.
func (o *OtherRoutes) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx, o.queue, o.followed = ctx, queue, map[types.NamespacedName]following{}
	return nil
}

// Follow enqueues the Echo when one of the named routes of its namespace is created, changed or deleted, and no longer for
// any other route.
func (o *OtherRoutes) Follow(echo types.NamespacedName, names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.followed[echo]
	if o.queue == nil || slices.Equal(before.names, names) {
		return
	}
	if delete(o.followed, echo); before.end != nil {
		before.end()
	}
	if len(names) > 0 {
		ctx, end := context.WithCancel(o.ctx)
		o.followed[echo] = following{names, end}
		for _, name := range names {
			go o.watch(ctx, echo, name)
		}
	}
}

// routeChanged drops the events of changes of the status, which Gateways write.
var routeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
}}

func (o *OtherRoutes) watch(ctx context.Context, echo types.NamespacedName, name string) {
	kind, route := children.OptionalKind(), &metav1.PartialObjectMetadata{}
	route.SetGroupVersionKind(kind.Resource.GroupVersion().WithKind(kind.ObjectKind))
	routes, err := cache.New(o.Cluster.GetConfig(), cache.Options{
		HTTPClient: o.Cluster.GetHTTPClient(), Scheme: o.Cluster.GetScheme(), Mapper: o.Cluster.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{echo.Namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}},
	})
	if err == nil {
		enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: echo}}
		})
		err = source.Kind[client.Object](routes, route, enqueue, routeChanged).Start(ctx, o.queue)
	}
	if err == nil {
		err = routes.Start(ctx)
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Watch an overridden HTTPRoute", "namespace", echo.Namespace, "name", name)
	}
}

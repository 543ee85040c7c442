package informers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// DiscoveryPeriod is the time between two probes of a kind that the cluster does not serve: a little less than a minute,
// so that Echoes converge within a minute after the installation of a CRD.
const DiscoveryPeriod = 58 * time.Second

var (
	// ErrNotServed reports that the API server does not serve the kind.
	ErrNotServed = errors.New("the API server does not serve the kind")
	// ErrNotYet reports that the cache does not contain the kind yet.
	ErrNotYet = errors.New("the cache does not contain the kind yet")
)

// Optional is the kind of children that the cluster may not serve, or not let the operator read. It is a source of the
// controller that watches the kind while that can be read. Meanwhile it probes the kind once per period, if Check is
// called.
type Optional struct {
	// Period is the time between two probes.
	Period time.Duration
	// Reader reads from the API server, and Cache is that of the manager.
	Reader client.Reader
	Cache  cache.Cache
	// Namespaces are those of the cache. None means all.
	Namespaces []string
	// Events has the handler of the events of the kind.
	Events source.Informer
	// Users returns the requests whose reconciliation calls Check.
	Users func(context.Context) []reconcile.Request

	// asked is signaled by Check.
	asked chan struct{}

	mu      sync.Mutex
	missing error
	// wasNotServed is true if the API server did not serve the kind earlier.
	wasNotServed bool
	probed       time.Time
	endWatch     context.CancelFunc
}

// NewOptional returns the kind of children that the cluster may not serve.
func NewOptional(period time.Duration) *Optional {
	return &Optional{Period: period, asked: make(chan struct{}, 1), missing: ErrNotYet, endWatch: func() {}}
}

// Check returns nil if the cache contains the kind. Otherwise, it returns ErrNotServed, ErrNotYet, or why the operator
// may not read the kind. What an earlier period has found says nothing: until the next probe, it is ErrNotYet.
func (o *Optional) Check() error {
	select {
	case o.asked <- struct{}{}:
	default:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.missing != nil && time.Since(o.probed) > o.Period {
		return ErrNotYet
	}
	return o.missing
}

// IsSynced returns false if the cache lacks the kind although the API server has begun to serve it.
func (o *Optional) IsSynced() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.missing == nil || errors.Is(o.missing, ErrNotServed) || !o.wasNotServed
}

// WatchFailed handles errors of every watch. It ends that of the kind if the API server no longer serves the kind.
func (o *Optional) WatchFailed(ctx context.Context, reflector *toolscache.Reflector, err error) {
	if apierrors.IsNotFound(err) && reflector.TypeDescription() == fmt.Sprintf("%T", children.OptionalKind().New()) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.endWatch()
		return
	}
	toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
}

// Start implements source.Source.
func (o *Optional) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	go func() {
		hasFailed := false
		for {
			missing, period := o.probe(ctx), o.Period
			switch {
			case missing == nil:
				missing, hasFailed = o.watch(ctx, queue), false
			case errors.Is(missing, ErrNotServed), apierrors.IsForbidden(missing):
				hasFailed = false
			case hasFailed:
				period = min(period, responseTimeout)
			default: // It may have passed with the next probe.
				missing, period, hasFailed = ErrNotYet, min(period, responseTimeout), true
			}
			o.set(ctx, missing, queue)
			select {
			case <-ctx.Done():
				return
			case <-time.After(period):
			}
			select {
			case <-ctx.Done():
				return
			case <-o.asked:
			}
		}
	}()
	return nil
}

// set sets the result of Check, and enqueues the users if it is another one.
func (o *Optional) set(ctx context.Context, missing error, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	o.mu.Lock()
	isChanged := fmt.Sprint(missing) != fmt.Sprint(o.missing)
	o.wasNotServed = errors.Is(o.missing, ErrNotServed) || o.wasNotServed && o.missing != nil
	o.missing, o.probed = missing, time.Now()
	o.mu.Unlock()
	if !isChanged || ctx.Err() != nil {
		return
	}
	for _, request := range o.Users(ctx) {
		queue.Add(request)
	}
}

func (o *Optional) probe(ctx context.Context) error {
	namespaces := o.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		err := probe(ctx, o.Reader, children.OptionalKind(), namespace)
		if apierrors.IsNotFound(err) {
			return ErrNotServed
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// watch watches the kind until the API server no longer serves it. The events start when the cache is filled, so that
// the reconciliation of an object of the initial list can read it.
func (o *Optional) watch(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	watchCtx, end := context.WithCancel(ctx)
	defer end()
	o.mu.Lock()
	o.endWatch = end
	o.mu.Unlock()
	kind := children.OptionalKind()
	log.FromContext(ctx).Info("The API server serves the kind; starting the watch", "kind", kind.Name)
	informer, err := o.Cache.GetInformer(watchCtx, kind.New())
	if err == nil {
		o.set(ctx, nil, queue)
		events := o.Events
		events.Informer = informer
		err = events.Start(watchCtx, queue)
		<-watchCtx.Done()
		log.FromContext(ctx).Info("The watch of the kind ended", "kind", kind.Name)
	}
	_ = o.Cache.RemoveInformer(ctx, kind.New()) // It fails only for a type that is not in the scheme.
	if watchCtx.Err() != nil {
		return ErrNotServed
	}
	return err
}

package informers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// DiscoveryPeriod is the minimum time between two questions to the API server whether it serves a
// kind: a little less than a minute, so that Echoes converge within a minute after the installation of a CRD.
const DiscoveryPeriod = 58 * time.Second

// ErrNotServed reports that the API server does not serve the kind.
var ErrNotServed = errors.New("the API server does not serve the kind")

// Optional is a kind that the API server may not serve. While the API server serves it, the cache has an informer of
// it in each namespace, and each namespace has its own result of Check. To find out, Optional asks the API server at its
// start, and later whenever Check is called, at most once per period. Every user may ask that; a watch of CRDs would need
// permissions in the whole cluster.
type Optional struct {
	// Period is the minimum time between two questions.
	Period time.Duration

	kind children.Kind
	// served asks the API server whether it serves the kind.
	served func() (bool, error)
	cache  cache.Informers
	events source.Informer
	// users returns the requests of a namespace, or of all, whose reconciliation calls Check.
	users usersFunc
	// ctx ends with the manager, and queue is that of the controller. Both are set at its start.
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu sync.Mutex
	// missing is why the cache has no informers of the kind. It is nil if the cache does.
	missing error
	// waitingSince is since when the API server owes a response.
	waitingSince time.Time
	// informers has the last informer of each namespace.
	informers map[string]*informer
	// idle is true from the end of a watch, or a response without one, until the next question. nextQuestion is when
	// that may be.
	idle         bool
	nextQuestion time.Time
	endWatch     context.CancelFunc
}

type usersFunc = func(ctx context.Context, namespace string) []reconcile.Request

// NewOptional returns the kind of children that the API server may not serve.
func NewOptional(period time.Duration) *Optional {
	return &Optional{Period: period, kind: children.OptionalKind(), missing: errNoResponse, informers: map[string]*informer{}}
}

// SetupWithManager prepares the source of the events of the kind, including its initial list. The source also enqueues
// the users when the result of Check changes.
func (o *Optional) SetupWithManager(mgr ctrl.Manager, events source.Informer, users usersFunc) error {
	d, err := discovery.NewDiscoveryClientForConfig(mgr.GetConfig())
	if err != nil {
		return err
	}
	o.served = func() (bool, error) { return discovery.IsResourceEnabled(d, o.kind.Resource) }
	o.cache, o.events, o.users = mgr.GetCache(), events, users
	return nil
}

// Start implements source.Source.
func (o *Optional) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	o.ctx, o.queue = ctx, queue
	o.set(errNoResponse, nil)
	go o.ask(ctx)
	return nil
}

// Check returns nil if the cache contains the kind in the namespace. Otherwise, it returns ErrNotServed, ErrNotYet, or
// what has prevented the operator for long from reading the kind. It does not wait: if the last response of the API server
// is too old, the next one is on its way.
func (o *Optional) Check(namespace string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle && !time.Now().Before(o.nextQuestion) {
		o.idle = false
		if errors.Is(o.missing, ErrNotServed) {
			o.missing, o.waitingSince = errNoResponse, time.Now()
		}
		go o.ask(o.ctx)
	}
	if o.missing == nil {
		return o.checkInformer(namespace)
	}
	isNotServed, lasts := errors.Is(o.missing, ErrNotServed), time.Since(o.waitingSince) > patience
	if isNotServed || lasts || apierrors.IsForbidden(o.missing) {
		return o.missing
	}
	return ErrNotYet
}

func (o *Optional) checkInformer(namespace string) error {
	if i, found := ofNamespace(o.informers, namespace); found {
		return i.missing()
	}
	return ErrNotYet
}

// set sets why the cache does not contain the kind, and what ends the watch.
func (o *Optional) set(missing error, endWatch context.CancelFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.missing, o.waitingSince, o.endWatch = missing, time.Now(), endWatch
}

// ask asks the API server whether it serves the kind, and watches the kind until it no longer does.
func (o *Optional) ask(ctx context.Context) {
	served, err := o.served()
	if err == nil && served {
		err = o.watch(ctx)
	}
	if ctx.Err() != nil {
		return // The watch ended with the manager.
	}
	o.mu.Lock()
	o.idle, o.missing, o.nextQuestion = true, ErrNotServed, time.Now().Add(o.Period)
	if err != nil {
		o.missing, o.nextQuestion = err, time.Now().Add(patience)
	}
	o.mu.Unlock()
	_ = o.cache.RemoveInformer(ctx, o.kind.New()) // It fails only for a type that is not in the scheme.
	o.enqueueUsers(ctx, metav1.NamespaceAll)
}

// watch watches the kind until the API server no longer serves it.
func (o *Optional) watch(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	o.set(errNoResponse, end)
	log.FromContext(ctx).Info("The API server serves the kind; starting the watch", "kind", o.kind.Name)
	if _, err := o.cache.GetInformer(ctx, o.kind.New()); err != nil {
		return err
	}
	o.set(nil, end)
	for _, i := range o.copyInformers() {
		go o.startEvents(ctx, i)
	}
	<-ctx.Done()
	log.FromContext(ctx).Info("The watch of the kind ended", "kind", o.kind.Name)
	return nil
}

// startEvents starts the events of a namespace when its informer is synced, so that the reconciliation of an object of
// the initial list can read it.
func (o *Optional) startEvents(ctx context.Context, i *informer) {
	select {
	case <-i.HasSyncedChecker().Done():
	case <-ctx.Done():
		return
	}
	events := o.events
	events.Informer = i
	_ = events.Start(ctx, o.queue) // It fails only for an informer that was removed.
	o.enqueueUsers(ctx, i.namespace)
}

// watchFailed handles a failed list or watch request, which the informer repeats.
func (o *Optional) watchFailed(ctx context.Context, reflector *toolscache.Reflector, i *informer, err error) {
	switch {
	case apierrors.IsNotFound(err): // The API server no longer serves the kind.
		o.mu.Lock()
		o.endWatch()
		o.mu.Unlock()
	case i.isSynced(): // Otherwise, Check returns the error.
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
	}
}

func (o *Optional) enqueueUsers(ctx context.Context, namespace string) {
	for _, request := range o.users(ctx, namespace) {
		o.queue.Add(request)
	}
}

// own has the informer belong to the kind. It is always skipped, so that neither the readiness of the operator nor its
// other watches wait for a kind that the API server may never list.
func (o *Optional) own(i *informer) {
	i.register, i.isSkipped = o.add, func(*informer) bool { return true }
	failed := func(ctx context.Context, reflector *toolscache.Reflector, err error) {
		o.watchFailed(ctx, reflector, i, err)
	}
	_ = i.SetWatchErrorHandlerWithContext(failed) // It fails only for an informer that runs.
}

func (o *Optional) add(i *informer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.informers[i.namespace] = i
}

func (o *Optional) copyInformers() []*informer {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.informers))
}

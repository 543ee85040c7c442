package informers

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
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

const (
	// DiscoveryPeriod is the minimum time between two questions to the API server whether it serves a
	// kind: a little less than a minute, so that Echoes converge within a minute after the installation of a CRD.
	DiscoveryPeriod = 58 * time.Second

	// patience is how long the operator may try to read a kind until Check reports why it cannot, and when it asks
	// again after an error.
	patience = 10 * time.Second
)

var (
	// ErrNotServed reports that the API server does not serve the kind.
	ErrNotServed = errors.New("the API server does not serve the kind")
	// ErrNotYet reports that the cache does not contain the kind yet.
	ErrNotYet = errors.New("the cache does not contain the kind yet")

	errNoAnswer = errors.New("the API server has not answered yet")
)

// Optional is a kind that the API server may not serve. While the API server serves it, the cache has an informer of
// it. To find out, Optional asks the API server at its start, and later whenever Check is called, at most once per
// period. Every user may ask that; a watch of CRDs would need permissions in the whole cluster.
type Optional struct {
	// Period is the minimum time between two questions.
	Period time.Duration

	kind children.Kind
	// served asks the API server whether it serves the kind.
	served func() (bool, error)
	cache  cache.Informers
	events source.Informer
	// users returns the requests whose reconciliation calls Check.
	users func(context.Context) []reconcile.Request
	// ctx ends with the manager, and queue is that of the controller. Both are set at its start.
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu sync.Mutex
	// missing is why the cache does not contain the kind. It is nil if the cache does.
	missing error
	// trying is since when the operator tries to read the kind.
	trying time.Time
	// idle is true from the end of a watch, or an answer without one, until the next question. nextQuestion is when
	// that may be.
	idle         bool
	nextQuestion time.Time
	endWatch     context.CancelFunc
}

// NewOptional returns the kind of children that the API server may not serve.
func NewOptional(period time.Duration) *Optional {
	return &Optional{Period: period, kind: children.OptionalKind(), missing: errNoAnswer}
}

// SetupWithManager prepares the source of the events of the kind, including its initial list. The source also enqueues
// the users when the result of Check changes.
func (o *Optional) SetupWithManager(mgr ctrl.Manager, events source.Informer, users func(context.Context) []reconcile.Request) error {
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
	o.set(errNoAnswer, nil)
	go o.ask(ctx)
	return nil
}

// Check returns nil if the cache contains the kind. Otherwise, it returns ErrNotServed, ErrNotYet, or what has
// prevented the operator for long from reading the kind. It does not wait: if the last answer of the API server
// is too old, the next one is on its way.
func (o *Optional) Check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle && !time.Now().Before(o.nextQuestion) {
		o.idle = false
		if errors.Is(o.missing, ErrNotServed) {
			o.missing, o.trying = errNoAnswer, time.Now()
		}
		go o.ask(o.ctx)
	}
	if isKnown := o.missing == nil || errors.Is(o.missing, ErrNotServed); isKnown {
		return o.missing
	}
	if lasts := apierrors.IsForbidden(o.missing) || time.Since(o.trying) > patience; lasts {
		return o.missing
	}
	return ErrNotYet
}

// set sets why the cache does not contain the kind, and what ends the watch.
func (o *Optional) set(missing error, endWatch context.CancelFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.missing, o.trying, o.endWatch = missing, time.Now(), endWatch
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
	o.enqueueUsers(ctx)
}

// watch watches the kind until the API server no longer serves it.
func (o *Optional) watch(ctx context.Context) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	o.set(errNoAnswer, end)
	log.FromContext(ctx).Info("The API server serves the kind; starting the watch", "kind", o.kind.Name)
	informer, err := o.cache.GetInformer(ctx, o.kind.New())
	if err != nil {
		return err
	}
	select {
	case <-informer.HasSyncedChecker().Done():
		o.set(nil, end) // Before the initial list arrives, so that a reconciliation of its objects can read them.
		o.events.Informer = informer
		if err := o.events.Start(ctx, o.queue); err != nil {
			return err
		}
		o.enqueueUsers(ctx)
		<-ctx.Done()
	case <-ctx.Done():
	}
	log.FromContext(ctx).Info("The watch of the kind ended", "kind", o.kind.Name)
	return nil
}

// watchFailed handles a failed list or watch request, which the informer repeats.
func (o *Optional) watchFailed(ctx context.Context, reflector *toolscache.Reflector, err error) {
	o.mu.Lock()
	isSynced := o.missing == nil
	switch {
	case o.idle: // The watch has ended.
	case apierrors.IsNotFound(err): // The API server no longer serves the kind.
		o.endWatch()
	case !isSynced:
		o.missing = err
	}
	o.mu.Unlock()
	if isSynced && !apierrors.IsNotFound(err) {
		toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
	}
}

func (o *Optional) enqueueUsers(ctx context.Context) {
	for _, request := range o.users(ctx) {
		o.queue.Add(request)
	}
}

// newInformer returns an informer. That of the optional kind reports failures to Optional.
func (o *Optional) newInformer(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(lw, object, resync, indexers)
	if reflect.TypeOf(object) != reflect.TypeOf(o.kind.New()) {
		return informer
	}
	_ = informer.SetWatchErrorHandlerWithContext(o.watchFailed) // It fails only for an informer that runs.
	return optionalInformer{informer}
}

// optionalInformer counts as synced from the beginning. So neither the readiness of the operator nor its other watches
// wait for a kind that the API server may never list. Optional waits until it is synced.
type optionalInformer struct{ toolscache.SharedIndexInformer }

// HasSynced implements toolscache.SharedInformer.
func (optionalInformer) HasSynced() bool { return true }

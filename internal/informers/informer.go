package informers

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// patience is how long the API server may owe a response until that counts as a failure.
const patience = 10 * time.Second

var (
	// ErrNotYet reports that the cache does not contain the kind yet.
	ErrNotYet = errors.New("the cache does not contain the kind yet")

	errNoResponse = errors.New("the API server has not responded yet")
)

// informer is an informer of one kind in one namespace that knows how the API server responds to its requests. Others need
// not wait for it: its owner decides when HasSynced returns true.
type informer struct {
	toolscache.SharedIndexInformer
	// kind is the name of the type that it reads, and namespace is where. "" means all namespaces.
	kind, namespace string
	// register adds the informer to its owner when the namespace is known.
	register func(*informer)
	// isSkipped reports whether others do not wait until it is synced.
	isSkipped func(*informer) bool

	mu sync.Mutex
	// isAsked is true from a request until its response. err is the last response, and waitingSince is the time of the last
	// response without an error, or of the first request after it.
	isAsked      bool
	err          error
	waitingSince time.Time
}

// newInformer returns an informer that is not registered yet.
func newInformer(lw toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) *informer {
	i, api := &informer{kind: reflect.TypeOf(object).Elem().Name()}, toolscache.ToListerWatcherWithContext(lw)
	i.SharedIndexInformer = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			i.ask()
			list, err := api.ListWithContext(ctx, options)
			i.response(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			i.ask()
			w, err := api.WatchWithContext(ctx, options)
			if isFollowedByList := err != nil && options.SendInitialEvents != nil; !isFollowedByList {
				i.response(err)
			}
			return w, err
		},
	}, object, resync, indexers)
	return i
}

func (i *informer) ask() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.isAsked && i.err == nil {
		i.waitingSince = time.Now()
	}
	i.isAsked = true
}

func (i *informer) response(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.isAsked, i.err = false, err
	if err == nil {
		i.waitingSince = time.Now()
	}
}

// failure returns the API server's rejection of the last request, or what has prevented the informer for long from
// being up to date.
func (i *informer) failure() error {
	isSynced := i.isSynced()
	i.mu.Lock()
	defer i.mu.Unlock()
	isUpToDate := isSynced && !i.isAsked && i.err == nil
	lasts := !i.waitingSince.IsZero() && time.Since(i.waitingSince) > patience
	switch {
	case isUpToDate:
		return nil
	case apierrors.IsForbidden(i.err):
		return i.err
	case lasts && i.err != nil:
		return i.err
	case lasts:
		return errNoResponse
	default:
		return nil
	}
}

// missing returns nil if the informer is synced. Otherwise, it returns the failure or ErrNotYet.
func (i *informer) missing() error {
	if i.isSynced() {
		return nil
	}
	if err := i.failure(); err != nil {
		return err
	}
	return ErrNotYet
}

// isSynced reports whether the informer is synced, and not only skipped.
func (i *informer) isSynced() bool { return i.SharedIndexInformer.HasSynced() }

// HasSynced implements toolscache.SharedInformer.
func (i *informer) HasSynced() bool { return i.isSynced() || i.isSkipped(i) }

// AddEventHandlerWithOptions implements toolscache.SharedInformer.
func (i *informer) AddEventHandlerWithOptions(handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	r, err := i.SharedIndexInformer.AddEventHandlerWithOptions(handler, options)
	return registration{r, i}, err
}

// registration is that of an event handler, for which others need not wait either.
type registration struct {
	toolscache.ResourceEventHandlerRegistration
	informer *informer
}

// HasSynced implements toolscache.ResourceEventHandlerRegistration.
func (r registration) HasSynced() bool {
	isSkipped := !r.informer.isSynced() && r.informer.isSkipped(r.informer)
	return isSkipped || r.ResourceEventHandlerRegistration.HasSynced()
}

// inNamespace returns a transform that also registers an informer of the namespace. controller-runtime does not tell
// NewInformer the namespace, but it then sets the transform, which each namespace may have of its own.
func inNamespace(namespace string, transform toolscache.TransformFunc) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if i, is := object.(*informer); is {
			i.namespace = namespace
			i.register(i)
			return i, nil
		}
		return transform(object)
	}
}

// SetTransform implements toolscache.SharedInformer. It registers the informer by a transform of inNamespace.
func (i *informer) SetTransform(transform toolscache.TransformFunc) error {
	if transform != nil {
		_, _ = transform(i)
	}
	return i.SharedIndexInformer.SetTransform(transform)
}

// ofNamespace returns the value of the namespace, or of all.
func ofNamespace[T any](values map[string]T, namespace string) (value T, found bool) {
	if value, found = values[namespace]; !found {
		value, found = values[metav1.NamespaceAll]
	}
	return value, found
}

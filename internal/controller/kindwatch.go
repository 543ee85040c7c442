package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// syncTimeout is how long a reconciliation waits for the list of a kind.
	syncTimeout = time.Second
	// watchStartTimeout is how long the API server may take to list a kind until the status reports it.
	watchStartTimeout = 10 * time.Second
)

// kindWatch is a watch of an optional kind, with a cache of its own: a kind that cannot be listed
// would make the manager's cache unready, and that cache cannot forget what its clients waited for
// before the watch ended.
type kindWatch struct {
	// client reads from the cache of the watch.
	client client.Client

	started time.Time
	// synced is closed when the cache is complete.
	synced chan struct{}
	// failed is closed at the first failure before.
	failed chan struct{}
	cancel context.CancelFunc

	mu      sync.Mutex
	failure error
}

// startWatch starts a watch of the kind, whose events enqueue Echoes.
func startWatch(ctx context.Context, mgr ctrl.Manager, o *optionalAPI, namespaces []string) (*kindWatch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &kindWatch{started: time.Now(), synced: make(chan struct{}), failed: make(chan struct{}), cancel: cancel}
	options := kindCacheOptions(o.kind, namespaces)
	options.Scheme, options.Mapper, options.HTTPClient = mgr.GetScheme(), mgr.GetRESTMapper(), mgr.GetHTTPClient()
	options.DefaultWatchErrorHandler = func(ctx context.Context, reflector *toolscache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			o.end(w)
		} else if !w.fail(ctx, err) {
			toolscache.DefaultWatchErrorHandler(ctx, reflector, err)
		}
	}
	kindCache, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("set up the cache of the kind %s: %w", o.kind.Name, err)
	}
	w.client, err = client.New(mgr.GetConfig(), client.Options{
		Scheme: options.Scheme, Mapper: options.Mapper, HTTPClient: options.HTTPClient, Cache: &client.CacheOptions{Reader: kindCache},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("set up the client of the kind %s: %w", o.kind.Name, err)
	}
	log.FromContext(ctx).Info("The API server serves the kind; starting the watch", "kind", o.kind.Name)
	events := source.Kind(kindCache, client.Object(o.kind.New()), handler.EnqueueRequestsFromMapFunc(echoOfChild), ignoreInitialList, o.news)
	if err := events.Start(ctx, o.queue); err != nil {
		cancel()
		return nil, err
	}
	go func() { _ = kindCache.Start(ctx) }() // It fails only if it was started before.
	go func() {
		if events.WaitForSync(ctx) == nil && ctx.Err() == nil {
			close(w.synced)
			o.requeue()
		}
	}()
	return w, nil
}

func (w *kindWatch) isSynced() bool {
	select {
	case <-w.synced:
		return true
	default:
		return false
	}
}

// fail notes a failure before the cache is complete, which the status reports. It returns false for
// other errors.
func (w *kindWatch) fail(ctx context.Context, err error) bool {
	var response apierrors.APIStatus
	if w.isSynced() || !errors.As(err, &response) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure == nil {
		log.FromContext(ctx).Info("Watch request failed; retrying", "error", status.Truncate(err.Error(), maxNote))
		close(w.failed)
	}
	w.failure = err
	return true
}

// wait waits until the cache is complete. If that takes longer than syncTimeout, or fails, it
// returns what the reconciliation reports about the child.
func (w *kindWatch) wait(ctx context.Context, kind children.Kind) (watched bool, instead child, err error) {
	if w.isSynced() {
		return true, child{}, nil
	}
	select {
	case <-w.synced:
	case <-w.failed:
	case <-time.After(syncTimeout):
	case <-ctx.Done():
	}
	w.mu.Lock()
	failure := w.failure
	w.mu.Unlock()
	switch {
	case w.isSynced():
		return true, child{}, nil
	case failure == nil && time.Since(w.started) > watchStartTimeout:
		failure = fmt.Errorf("the API server has not listed the objects within %s", watchStartTimeout)
		fallthrough
	case failure != nil:
		return false, child{failure: rejection(kind, failure), recheck: backoff.Max}, nil //nolint:nilerr // The status reports it.
	default:
		return false, child{}, errNotWatched
	}
}

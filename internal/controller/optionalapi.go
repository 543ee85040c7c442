package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// discoveryPeriod is the minimum time between two questions to the API server whether it serves a
	// kind: a little less than a minute, so that Echoes converge within a minute after the
	// installation of a CRD.
	discoveryPeriod = 58 * time.Second

	// discoveryRetry is that time after the API server did not answer.
	discoveryRetry = 5 * time.Second

	// discoveryTimeout limits how long the operator waits for the answer.
	discoveryTimeout = 10 * time.Second
)

// optionalAPI watches a kind of child that the cluster may not serve. Every user may read which kinds
// the API server serves; a watch of CRDs would need permissions in the whole cluster. The operator
// asks only while an Echo needs the kind. The watch ends when the API server no longer serves the kind.
type optionalAPI struct {
	kind children.Kind
	// period is the minimum time between two questions to the API server.
	period time.Duration
	// served asks the API server whether it serves the kind.
	served func(context.Context) (bool, error)
	// watchKind starts a watch.
	watchKind func(context.Context, *optionalAPI) (*kindWatch, error)
	// echoes reads Echoes from the cache.
	echoes client.Reader
	// news drops the events of the operator's own writes.
	news predicate.Predicate

	// ctx ends with the manager, and queue is that of the controller. Both are set at its start.
	ctx   context.Context
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu sync.Mutex
	// asking is true while a reconciliation waits for the API server's answer.
	asking bool
	// next is when a reconciliation may ask again, answer what all report until then.
	next   time.Time
	answer child
	// err is the error if the API server did not answer, unanswered how often in a row.
	err        error
	unanswered int
	// watch is the last watch, which may have ended.
	watch   *kindWatch
	running bool
}

// newOptionalAPI returns the optional API of a kind.
func newOptionalAPI(mgr ctrl.Manager, kind children.Kind, namespaces []string, period time.Duration, news predicate.Predicate) (*optionalAPI, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return &optionalAPI{
		kind:   kind,
		period: period,
		served: func(ctx context.Context) (bool, error) {
			return isServed(ctx, d, kind)
		},
		watchKind: func(ctx context.Context, o *optionalAPI) (*kindWatch, error) {
			return startWatch(ctx, mgr, o, namespaces)
		},
		echoes: mgr.GetCache(),
		news:   news,
	}, nil
}

// source returns a source that notes context and queue of the controller.
func (o *optionalAPI) source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		o.ctx, o.queue = ctx, queue
		return nil
	})
}

// isServed reports whether the API server serves the kind. The group may have other kinds only.
func isServed(ctx context.Context, d *discovery.DiscoveryClient, kind children.Kind) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, kind.Resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range list.APIResources {
		if list.APIResources[i].Name == kind.Resource.Resource && list.APIResources[i].Kind == kind.ObjectKind {
			return true, nil
		}
	}
	return false, nil
}

// errNotWatched reports that it is not known yet whether the API server serves a kind, or that the
// cache does not contain it yet.
var errNotWatched = errors.New("the cache of an optional kind is not synced")

// access returns true if the operator watches the kind, starting the watch if necessary. Otherwise, it
// returns what the reconciliation reports about the child.
func (o *optionalAPI) access(ctx context.Context) (watched bool, instead child, err error) {
	watch, instead, err := o.ensureWatch(ctx)
	if watch == nil || err != nil {
		return false, instead, err
	}
	return watch.wait(ctx, o.kind)
}

// synced reports whether the cache contains the kind.
func (o *optionalAPI) synced() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.running && o.watch.isSynced()
}

// client returns the client for children of the kind. After the end of a watch, its requests fail.
func (o *optionalAPI) client() client.Client {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.watch.client
}

// ensureWatch returns the running watch. Without one, it asks the API server whether it serves the
// kind, unless it did so recently. One reconciliation asks, and the others do not wait for it.
func (o *optionalAPI) ensureWatch(ctx context.Context) (*kindWatch, child, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch wait := time.Until(o.next); {
	case o.running:
		return o.watch, child{}, nil
	case o.asking:
		return nil, child{}, errNotWatched
	case wait > 0:
		answer := o.answer
		answer.recheck = wait
		return nil, answer, o.err
	}
	o.asking = true
	o.mu.Unlock()
	served, err := o.served(ctx)
	o.mu.Lock()
	o.asking = false
	o.note(served, err)
	if o.running {
		return o.watch, child{}, nil
	}
	answer := o.answer
	answer.recheck = time.Until(o.next)
	return nil, answer, o.err
}

// note notes the API server's answer, and starts the watch if it serves the kind.
func (o *optionalAPI) note(served bool, err error) {
	o.next, o.answer, o.err = time.Now().Add(o.period), child{}, nil
	var response apierrors.APIStatus
	switch {
	case err == nil && served:
		var watch *kindWatch
		if watch, o.err = o.watchKind(o.ctx, o); o.err == nil {
			o.watch, o.running = watch, true
		}
	case err == nil:
		o.answer = child{notServed: true}
	case errors.As(err, &response) && (!isTransient(response.Status().Code) || o.unanswered >= maxTransient):
		o.answer = child{failure: rejection(o.kind, err)}
	default:
		o.next, o.err = time.Now().Add(discoveryRetry), errNotWatched
	}
	if o.unanswered++; err == nil {
		o.unanswered = 0
	}
}

// end ends a watch of a kind that the API server no longer serves.
func (o *optionalAPI) end(watch *kindWatch) {
	o.mu.Lock()
	ended := o.running && o.watch == watch
	if ended {
		o.running = false
		watch.cancel()
	}
	o.mu.Unlock()
	if ended {
		log.FromContext(o.ctx).Info("The API server no longer serves the kind; the watch ended", "kind", o.kind.Name)
		o.requeue()
	}
}

// requeue enqueues the Echoes that need the kind.
func (o *optionalAPI) requeue() {
	var list echov1.EchoList
	if err := o.echoes.List(o.ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return // Only at the end of the manager. The Echoes are also requeued after a time.
	}
	for i := range list.Items {
		if echo := &list.Items[i]; o.kind.Wanted(echo) || isNoted(echo) {
			o.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(echo)})
		}
	}
}

// rejection reports that the API server does not let the operator read a kind.
func rejection(kind children.Kind, err error) *status.Failure {
	return &status.Failure{Reason: echov1.ReasonRejected, Message: kind.Name + ": " + err.Error()}
}

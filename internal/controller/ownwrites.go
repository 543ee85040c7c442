package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// eventTimeout is how long a reconciliation waits for the events of earlier writes. Without them, for
// example because the object was deleted while the watch was interrupted, it reads the cache as it is.
const eventTimeout = time.Second

// ownWrites knows the writes of the operator whose events have not arrived. Such an event brings no
// news, so it does not reconcile the Echo again. And before it arrives, the cache is out of date, so
// the Echo is reconciled only afterwards.
type ownWrites struct {
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu     sync.Mutex
	echoes map[types.NamespacedName]*echoWrites
}

// echoWrites are the writes for one Echo.
type echoWrites struct {
	// awaited has the versions whose events have not arrived, last is when the last of them was written.
	awaited map[objectOfEcho]string
	last    time.Time
	// waiting is true if the Echo is to be reconciled when all events have arrived.
	waiting bool
	// reconciling is true during a reconciliation, and arrived has the versions in the events meanwhile:
	// an event may arrive before the response to the write.
	reconciling bool
	arrived     map[objectOfEcho][]string
}

// objectOfEcho identifies an Echo or one of its children, for a given Echo.
type objectOfEcho struct{ kind, name string }

const echoKind = "Echo"

// begin begins a reconciliation. It returns false if the cache is out of date: an event or the timeout
// then requeues the Echo.
func (o *ownWrites) begin(echo types.NamespacedName) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := o.echoes[echo]
	if writes == nil {
		writes = &echoWrites{awaited: map[objectOfEcho]string{}, arrived: map[objectOfEcho][]string{}}
		if o.echoes == nil {
			o.echoes = map[types.NamespacedName]*echoWrites{}
		}
		o.echoes[echo] = writes
	}
	writes.waiting = len(writes.awaited) > 0
	writes.reconciling = !writes.waiting
	return writes.reconciling
}

// end ends a reconciliation. It requeues the Echo if an event has brought news meanwhile.
func (o *ownWrites) end(echo types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := o.echoes[echo]
	writes.reconciling = false
	if len(writes.arrived) > 0 {
		clear(writes.arrived)
		o.queue.Add(reconcile.Request{NamespacedName: echo})
	}
	if len(writes.awaited) == 0 {
		delete(o.echoes, echo)
	}
}

// wrote notes a write during a reconciliation, by the object that the API server returned.
func (o *ownWrites) wrote(echo *echov1.Echo, kind string, object client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := o.echoes[client.ObjectKeyFromObject(echo)]
	if writes == nil {
		return // Nothing waits for a reconciler without a manager.
	}
	written, version := objectOfEcho{kind, object.GetName()}, object.GetResourceVersion()
	// Earlier versions are those on which the write was based.
	i := slices.Index(writes.arrived[written], version)
	if later := writes.arrived[written][i+1:]; i >= 0 && len(later) > 0 {
		writes.arrived[written] = later
		return
	}
	delete(writes.arrived, written)
	if i < 0 {
		writes.awaited[written], writes.last = version, time.Now()
	}
}

// isNews reports whether an event has to reconcile the Echo. News during a reconciliation do so at its
// end.
func (o *ownWrites) isNews(kind string, object client.Object) bool {
	echo, found := echoOf(kind, object)
	if !found {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	writes := o.echoes[echo]
	if writes == nil {
		return true
	}
	changed, version := objectOfEcho{kind, object.GetName()}, object.GetResourceVersion()
	switch {
	case writes.awaited[changed] == version:
		o.stopAwaiting(echo, changed)
		return false
	case writes.reconciling:
		writes.arrived[changed] = append(writes.arrived[changed], version)
		return false
	default:
		return true
	}
}

// deleted notes that an object no longer exists.
func (o *ownWrites) deleted(kind string, object client.Object) {
	echo, found := echoOf(kind, object)
	if !found {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if writes := o.echoes[echo]; writes != nil {
		gone := objectOfEcho{kind, object.GetName()}
		delete(writes.arrived, gone)
		o.stopAwaiting(echo, gone)
	}
}

// stopAwaiting removes an awaited event. After the last one, it requeues the Echo if that waits.
func (o *ownWrites) stopAwaiting(echo types.NamespacedName, object objectOfEcho) {
	writes := o.echoes[echo]
	delete(writes.awaited, object)
	if len(writes.awaited) > 0 || writes.reconciling {
		return
	}
	if writes.waiting {
		o.queue.Add(reconcile.Request{NamespacedName: echo})
	}
	delete(o.echoes, echo)
}

// expire requeues the Echoes whose events have not arrived in time.
func (o *ownWrites) expire(context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for echo, writes := range o.echoes {
		if !writes.reconciling && time.Since(writes.last) > eventTimeout {
			delete(o.echoes, echo)
			o.queue.Add(reconcile.Request{NamespacedName: echo})
		}
	}
}

// Start implements manager.Runnable.
func (o *ownWrites) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, o.expire, eventTimeout/2)
	return nil
}

// source returns a source that notes the queue of the controller.
func (o *ownWrites) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		o.queue = queue
		return nil
	})
}

// news returns a predicate that drops the events of the operator's own writes.
func (o *ownWrites) news(kind string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return o.isNews(kind, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return o.isNews(kind, e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			o.deleted(kind, e.Object)
			return true
		},
	}
}

// echoOf returns the Echo to which an object belongs: itself, or that of a child.
func echoOf(kind string, object client.Object) (echo types.NamespacedName, found bool) {
	if kind == echoKind {
		return client.ObjectKeyFromObject(object), true
	}
	return ownerByName(object)
}

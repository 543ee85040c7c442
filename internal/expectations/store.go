// Package expectations keeps a controller from acting on a cache that lags behind its own writes, and from
// reconciling again because of them. The controller expects an event for each of its writes: until the
// event arrives, it does not reconcile the owner of the written object, and the event itself does not cause
// a reconciliation. Every change by another client causes one, also if its event arrives during a
// reconciliation or is merged with that of a write.
package expectations

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// timeout is how long a reconciliation waits for expected events. Without them, for example because the
// object was deleted while the watch was interrupted, it reads the cache as it is.
const timeout = time.Second

// Store has the expected events by owner: the object whose reconciliation writes the others.
type Store struct {
	// OwnerOf returns the owner of an object. Events of objects without an owner are dropped.
	OwnerOf func(kind string, object client.Object) (owner types.NamespacedName, found bool)

	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu     sync.Mutex
	owners map[types.NamespacedName]*owner
}

// owner is an owner that is being reconciled, or for which events are expected.
type owner struct {
	// expected has the versions whose events have not arrived, and wrote is when the last of them was written.
	expected map[object]string
	wrote    time.Time
	// postponed is true if the owner is to be reconciled when all expected events have arrived.
	postponed bool
	// reconciling is true during a reconciliation, and observed has the version of the last event of each
	// object meanwhile: an event may arrive before the response to the write.
	reconciling bool
	observed    map[object]string
}

// object identifies an object of an owner.
type object struct{ kind, name string }

// Begin begins a reconciliation. It returns false if the cache lags behind the writes of an earlier one:
// an event or the timeout then requeues the owner.
func (s *Store) Begin(name types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[name]
	if o == nil {
		o = &owner{expected: map[object]string{}, observed: map[object]string{}}
		if s.owners == nil {
			s.owners = map[types.NamespacedName]*owner{}
		}
		s.owners[name] = o
	}
	o.postponed = len(o.expected) > 0
	o.reconciling = !o.postponed
	return o.reconciling
}

// End ends a reconciliation. It requeues the owner if the event of another client's change has arrived
// meanwhile.
func (s *Store) End(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[name]
	o.reconciling = false
	if len(o.observed) > 0 {
		clear(o.observed)
		s.requeue(name)
	}
	if len(o.expected) == 0 {
		delete(s.owners, name)
	}
}

// Expect expects the event of a write during a reconciliation of the owner. The write was based on a
// version of the object, which is empty for a creation, and it would have failed for any other version.
func (s *Store) Expect(name types.NamespacedName, kind string, written client.Object, basedOn string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, version := s.owners[name], written.GetResourceVersion()
	changedNothing := version == basedOn // Admission has reverted the write, so there is no event.
	if o == nil || changedNothing {
		return
	}
	key := object{kind, written.GetName()}
	observed, found := o.observed[key]
	switch {
	case !found || isOlder(observed, version): // The write was based on what was observed.
		delete(o.observed, key)
		o.expected[key], o.wrote = version, time.Now()
	case observed == version:
		delete(o.observed, key)
	}
	// Otherwise, another client has changed the object since, and the owner is requeued at the end.
}

// observe records an event, and reports whether it has to reconcile the owner. An event during a
// reconciliation does so at its end.
func (s *Store) observe(kind string, changed client.Object) (reconcile bool) {
	name, found := s.OwnerOf(kind, changed)
	if !found {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owners[name]
	if o == nil {
		return true
	}
	key, version := object{kind, changed.GetName()}, changed.GetResourceVersion()
	expected := o.expected[key]
	switch {
	case version == expected:
		s.stopExpecting(name, key)
		return false
	case isOlder(version, expected):
		return false // The write was based on this version.
	case isOlder(expected, version):
		s.stopExpecting(name, key) // The event of the write is merged with that of a later change.
	}
	if o.reconciling {
		o.observed[key] = version
		return false
	}
	return true
}

// observeDeletion records that an object no longer exists.
func (s *Store) observeDeletion(kind string, deleted client.Object) {
	name, found := s.OwnerOf(kind, deleted)
	if !found {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.owners[name]; o != nil {
		key := object{kind, deleted.GetName()}
		delete(o.observed, key)
		s.stopExpecting(name, key)
	}
}

// stopExpecting stops expecting an event. After the last one, it requeues the owner if its reconciliation
// was postponed.
func (s *Store) stopExpecting(name types.NamespacedName, key object) {
	o := s.owners[name]
	delete(o.expected, key)
	if len(o.expected) > 0 || o.reconciling {
		return
	}
	if o.postponed {
		s.requeue(name)
	}
	delete(s.owners, name)
}

// isOlder reports whether a version is known to be older than another one of the same object. The order of
// versions that are not numbers, and of an empty one, is unknown.
func isOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

func (s *Store) requeue(name types.NamespacedName) {
	s.queue.Add(reconcile.Request{NamespacedName: name})
}

// expire requeues the owners whose expected events have not arrived in time.
func (s *Store) expire(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, o := range s.owners {
		expired := time.Since(o.wrote) > timeout
		if !o.reconciling && expired {
			delete(s.owners, name)
			s.requeue(name)
		}
	}
}

// Start implements manager.Runnable.
func (s *Store) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, s.expire, timeout/2)
	return nil
}

// Source returns a source that takes the queue of the controller and adds nothing.
func (s *Store) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		s.queue = queue
		return nil
	})
}

// Predicate returns a predicate that drops the expected events of a kind.
func (s *Store) Predicate(kind string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return s.observe(kind, e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return s.observe(kind, e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			s.observeDeletion(kind, e.Object)
			return true
		},
	}
}

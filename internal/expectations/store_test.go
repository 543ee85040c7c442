package expectations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// countingQueue counts additions.
type countingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	additions int
}

func (q *countingQueue) Add(reconcile.Request) { q.additions++ }

// simulation is an API server with an owner and two objects of it, a cache that lags behind it, and a
// controller that writes at random. A version is the number of a write.
type simulation struct {
	*rand.Rand
	store Store
	queue countingQueue

	// live, cached and known have the versions in the API server, in the cache and those that the last
	// reconciliation read or wrote.
	live, cached, known [3]int
	version             int
	// format is the format of a resourceVersion.
	format string
	// events and responses that have not arrived.
	events    []simulatedEvent
	responses []response

	queued, reconciling bool
	reconciliations     int
	log                 []string
}

type simulatedEvent struct{ object, version int }

// response is the response to a write that was based on a version of the object.
type response struct {
	simulatedEvent
	basedOn int
}

var simulatedOwner = types.NamespacedName{Namespace: "default", Name: "hello"}

func newSimulation(random *rand.Rand) *simulation {
	s := &simulation{Rand: random, queued: true, format: "%d"}
	s.store.queue = &s.queue
	s.store.OwnerOf = func(string, client.Object) (types.NamespacedName, bool) { return simulatedOwner, true }
	return s
}

func (s *simulation) object(e simulatedEvent) (kind string, object client.Object) {
	object = &corev1.ConfigMap{}
	object.SetNamespace(simulatedOwner.Namespace)
	object.SetName(simulatedOwner.Name)
	object.SetResourceVersion(fmt.Sprintf(s.format, e.version))
	return []string{"Owner", "Service", "Deployment"}[e.object], object
}

func (s *simulation) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *simulation) change(object int) simulatedEvent {
	s.version++
	s.live[object] = s.version
	e := simulatedEvent{object, s.version}
	s.events = append(s.events, e)
	return e
}

// deliver delivers the oldest event of an object.
func (s *simulation) deliver() {
	if len(s.events) == 0 {
		return
	}
	i := s.IntN(len(s.events))
	for j := range s.events[:i] {
		if s.events[j].object == s.events[i].object {
			i = j
			break
		}
	}
	e := s.events[i]
	s.events = append(s.events[:i:i], s.events[i+1:]...)
	s.cached[e.object] = e.version
	kind, object := s.object(e)
	news := s.store.Predicate(kind).Update(event.UpdateEvent{ObjectOld: object, ObjectNew: object})
	s.note("event %v, news: %t", e, news)
	s.queued = s.queued || news
	s.collect()
}

func (s *simulation) collect() {
	if s.queue.additions > 0 {
		s.queue.additions, s.queued = 0, true
		s.note("requeued")
	}
}

// interrupt interrupts the watch: of each object, only the newest version is reported afterwards.
func (s *simulation) interrupt() {
	newest := s.events[:0:0]
	for i, e := range s.events {
		if !slices.ContainsFunc(s.events[i+1:], func(later simulatedEvent) bool { return later.object == e.object }) {
			newest = append(newest, e)
		}
	}
	s.note("interruption: %v of %v", newest, s.events)
	s.events = newest
}

// expire has the operator wait no longer for events.
func (s *simulation) expire() {
	for _, o := range s.store.owners {
		o.wrote = time.Time{}
	}
	s.store.expire(context.Background())
	s.collect()
}

func (s *simulation) begin() {
	if !s.queued || s.reconciling {
		return
	}
	s.queued = false
	s.reconciling = s.store.Begin(simulatedOwner)
	s.note("begin: %t", s.reconciling)
	if s.reconciling {
		s.known = s.cached
		s.reconciliations++
	}
}

// write writes an object, unless the API server rejects it because the cache lags behind. An event
// requeues the owner then.
func (s *simulation) write(object int) {
	if !s.reconciling || s.known[object] != s.live[object] {
		return
	}
	basedOn := s.known[object]
	e := s.change(object)
	s.note("write %v", e)
	s.responses = append(s.responses, response{e, basedOn})
}

func (s *simulation) writeOne() { s.write(1) }

// revertedWrite writes an object, and admission reverts the write to what the object was.
func (s *simulation) revertedWrite(object int) {
	if !s.reconciling || s.known[object] != s.live[object] {
		return
	}
	e := simulatedEvent{object, s.known[object]}
	s.note("reverted write %v", e)
	s.responses = append(s.responses, response{e, e.version})
}

func (s *simulation) respond() {
	for _, r := range s.responses {
		kind, object := s.object(r.simulatedEvent)
		s.known[r.object] = r.version
		s.store.Expect(simulatedOwner, kind, object, fmt.Sprintf(s.format, r.basedOn))
		s.note("response %v", r)
	}
	s.responses = nil
}

func (s *simulation) end() {
	if !s.reconciling {
		return
	}
	s.respond()
	s.reconciling = false
	s.store.End(simulatedOwner)
	s.note("end")
	s.collect()
}

// settle delivers all events, and reconciles without writes.
func (s *simulation) settle() {
	for range 100 {
		s.end()
		for len(s.events) > 0 {
			s.deliver()
		}
		s.expire()
		s.begin()
	}
	s.end()
}

func TestEveryChangeOfOthersIsReconciled(t *testing.T) {
	for _, format := range []string{"%d", "v%d"} { // The order of other versions than numbers is unknown.
		for seed := range uint64(20_000) {
			s := newSimulation(rand.New(rand.NewPCG(seed, seed)))
			s.format = format
			testEveryChangeOfOthersIsReconciled(t, seed, s)
		}
	}
}

func testEveryChangeOfOthersIsReconciled(t *testing.T, seed uint64, s *simulation) {
	for range 40 {
		switch s.IntN(11) {
		case 0:
			s.note("change %v", s.change(s.IntN(3)))
		case 1, 2:
			s.deliver()
		case 3:
			s.begin()
		case 4, 5:
			s.write(s.IntN(3))
		case 6:
			s.respond()
		case 7:
			s.end()
		case 8:
			s.interrupt()
		case 9:
			s.revertedWrite(s.IntN(3))
		case 10:
			s.expire()
		}
	}
	s.settle()
	if s.known != s.live || s.queued || len(s.store.owners) > 0 {
		t.Fatalf("seed %d: the operator knows versions %v of %v, queued: %t, entries: %d\n%v", seed, s.known, s.live, s.queued, len(s.store.owners), s.log)
	}
}

func TestOwnWritesAreReconciledOnce(t *testing.T) {
	for seed := range uint64(2_000) {
		s := newSimulation(rand.New(rand.NewPCG(seed, seed)))
		s.begin()
		for object := range 3 {
			s.write(object)
			for range s.IntN(4) {
				s.deliver()
			}
			s.respond()
		}
		s.end()
		for len(s.events) > 0 {
			s.deliver()
		}
		s.settle()
		if s.reconciliations != 1 {
			t.Fatalf("seed %d: %d reconciliations, want 1\n%v", seed, s.reconciliations, s.log)
		}
	}
}

func TestOwnWritesWithoutEventsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(rand.New(rand.NewPCG(1, 1)))
		s.begin()
		s.write(1)
		s.events = nil // The object was deleted while the watch was interrupted.
		s.end()
		s.queued = true
		if s.begin(); s.reconciling {
			t.Error("begin = true before the event of a write")
		}
		time.Sleep(timeout)
		if s.store.expire(t.Context()); s.queue.additions > 0 {
			t.Errorf("requeued after %s, want later", timeout)
		}
		time.Sleep(time.Millisecond)
		s.store.expire(t.Context())
		if s.collect(); !s.queued {
			t.Error("not requeued after the timeout")
		}
		if s.begin(); !s.reconciling {
			t.Error("begin = false after the timeout")
		}
	})
}

func TestADeletionEndsTheWaitForAnEvent(t *testing.T) {
	s := newSimulation(rand.New(rand.NewPCG(1, 1)))
	s.begin()
	s.write(2)
	s.end()
	s.queued = true
	s.begin()
	kind, object := s.object(simulatedEvent{2, 1})
	if !s.store.Predicate(kind).Delete(event.DeleteEvent{Object: object}) {
		t.Error("a deletion is no news")
	}
	if s.collect(); !s.queued || len(s.store.owners) > 0 {
		t.Errorf("queued: %t, entries: %d, want true and 0", s.queued, len(s.store.owners))
	}
}

func TestTheEventOfTheVersionThatAWriteWasBasedOnDoesNotReconcile(t *testing.T) {
	for name, steps := range map[string][]func(*simulation){
		"before the write":       {(*simulation).deliver, (*simulation).writeOne, (*simulation).respond, (*simulation).end},
		"before the response":    {(*simulation).writeOne, (*simulation).deliver, (*simulation).respond, (*simulation).end},
		"after the response":     {(*simulation).writeOne, (*simulation).respond, (*simulation).deliver, (*simulation).end},
		"after a reconciliation": {(*simulation).writeOne, (*simulation).respond, (*simulation).end, (*simulation).deliver},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(rand.New(rand.NewPCG(1, 1)))
			s.cached[1] = s.change(1).version // The cache has the change, and its event arrives later.
			s.begin()
			for _, step := range steps {
				step(s)
			}
			s.deliver()
			if s.queued || len(s.store.owners) > 0 {
				t.Errorf("queued: %t, entries: %d, want false and 0\n%v", s.queued, len(s.store.owners), s.log)
			}
		})
	}
}

func TestAWriteThatAdmissionRevertsIsNotExpected(t *testing.T) {
	s := newSimulation(rand.New(rand.NewPCG(1, 1)))
	s.change(1)
	s.deliver()
	s.begin()
	s.revertedWrite(1)
	s.end()
	s.queued = true
	if s.begin(); !s.reconciling {
		t.Error("the next reconciliation waits for the event of a write that changed nothing")
	}
}

func TestALaterVersionEndsTheWaitForAnEvent(t *testing.T) {
	s := newSimulation(rand.New(rand.NewPCG(1, 1)))
	s.begin()
	s.write(1)
	s.end()
	s.change(1)
	s.interrupt()
	s.deliver()
	if s.begin(); !s.reconciling {
		t.Error("the next reconciliation waits for an event that is merged with that of a later change")
	}
}

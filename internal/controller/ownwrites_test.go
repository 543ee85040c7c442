package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// countingQueue counts additions.
type countingQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	additions int
}

func (q *countingQueue) Add(reconcile.Request) { q.additions++ }

// simulation is an API server with an Echo and two children, a cache that lags behind it, and an
// operator that writes at random. A version is the number of a write.
type simulation struct {
	*rand.Rand
	writes ownWrites
	queue  countingQueue

	// live, cached and known have the versions in the API server, in the cache and those that the last
	// reconciliation read or wrote.
	live, cached, known [3]int
	version             int
	// events and responses that have not arrived.
	events    []simulatedEvent
	responses []simulatedEvent

	queued, reconciling bool
	reconciliations     int
	log                 []string
}

type simulatedEvent struct{ object, version int }

var simulatedEcho = types.NamespacedName{Namespace: "default", Name: "hello"}

func newSimulation(random *rand.Rand) *simulation {
	s := &simulation{Rand: random, queued: true}
	s.writes.queue = &s.queue
	return s
}

func (s *simulation) object(e simulatedEvent) (kind string, object client.Object) {
	kind = []string{echoKind, "Service", "Deployment"}[e.object]
	object = &corev1.Service{}
	object.SetNamespace("default")
	object.SetName("echo-hello")
	if kind == echoKind {
		object = &echov1.Echo{}
		object.SetNamespace("default")
		object.SetName("hello")
	}
	object.SetResourceVersion(fmt.Sprint(e.version))
	return kind, object
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
	news := s.writes.news(kind).Update(event.UpdateEvent{ObjectOld: object, ObjectNew: object})
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
	for _, writes := range s.writes.echoes {
		writes.last = time.Time{}
	}
	s.writes.expire(context.Background())
	s.collect()
}

func (s *simulation) begin() {
	if !s.queued || s.reconciling {
		return
	}
	s.queued = false
	s.reconciling = s.writes.begin(simulatedEcho)
	s.note("begin: %t", s.reconciling)
	if s.reconciling {
		s.known = s.cached
		s.reconciliations++
	}
}

// write writes an object, unless the API server rejects it because the cache lags behind. An event
// requeues the Echo then.
func (s *simulation) write(object int) {
	if !s.reconciling || s.known[object] != s.live[object] {
		return
	}
	e := s.change(object)
	s.note("write %v", e)
	s.responses = append(s.responses, e)
}

func (s *simulation) respond() {
	for _, e := range s.responses {
		kind, object := s.object(e)
		s.known[e.object] = e.version
		s.writes.wrote(&echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: simulatedEcho.Namespace, Name: simulatedEcho.Name}}, kind, object)
		s.note("response %v", e)
	}
	s.responses = nil
}

func (s *simulation) end() {
	if !s.reconciling {
		return
	}
	s.respond()
	s.reconciling = false
	s.writes.end(simulatedEcho)
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
	for seed := range uint64(20_000) {
		s := newSimulation(rand.New(rand.NewPCG(seed, seed)))
		for range 40 {
			switch s.IntN(9) {
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
			}
		}
		s.settle()
		if s.known != s.live || s.queued || len(s.writes.echoes) > 0 {
			t.Fatalf("seed %d: the operator knows versions %v of %v, queued: %t, entries: %d\n%v", seed, s.known, s.live, s.queued, len(s.writes.echoes), s.log)
		}
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
		time.Sleep(eventTimeout)
		if s.writes.expire(t.Context()); s.queue.additions > 0 {
			t.Errorf("requeued after %s, want later", eventTimeout)
		}
		time.Sleep(time.Millisecond)
		s.writes.expire(t.Context())
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
	if !s.writes.news(kind).Delete(event.DeleteEvent{Object: object}) {
		t.Error("a deletion is no news")
	}
	if s.collect(); !s.queued || len(s.writes.echoes) > 0 {
		t.Errorf("queued: %t, entries: %d, want true and 0", s.queued, len(s.writes.echoes))
	}
}

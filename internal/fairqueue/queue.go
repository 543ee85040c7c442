// Package fairqueue is a work queue for a controller whose reconciliations sometimes wait: for an admission
// webhook, for an API server under load. Namespaces take turns, however many items each has, and an item is
// taken out of the queue only when a seat is free, so that everything that waits is visible in the metrics
// of the queue. A reconciliation that becomes slow gives its seat back, within limits for each namespace.
//
// The words are those of API Priority and Fairness, https://kubernetes.io/docs/concepts/cluster-administration/flow-control/.
package fairqueue

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// slowAfter is how long a reconciliation keeps its seat. Most take milliseconds, but an admission webhook
	// may delay each write by 30 s.
	slowAfter = 250 * time.Millisecond

	// maxSlow is the maximum number of reconciliations without a seat. Each holds a request open, and some memory.
	maxSlow = 240

	// maxInWork is the maximum number of reconciliations of one namespace, with and without a seat.
	maxInWork = 24
)

// Options configure a queue.
type Options[T comparable] struct {
	// Name is the label of the queue's metrics.
	Name string
	// RateLimiter determines when an item that failed is added again.
	RateLimiter workqueue.TypedRateLimiter[T]
	// Seats is the maximum number of items in work that are not slow. The controller needs Workers(Seats).
	Seats int
	// Namespace returns the namespace of an item.
	Namespace func(T) string
	// Urgent reports whether an item goes before others of its namespace. It is called at each addition.
	Urgent func(T) bool
}

// Queue is a work queue. Everything but the order and the seats is that of client-go's.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	namespace func(T) string

	mu sync.Mutex
	// changed wakes a worker that waits for an item or for a seat.
	changed  *sync.Cond
	shutDown bool
	waiting  waiting[T]
	// chosen are items that a worker with a seat is about to take out.
	chosen []T
	free   int
	seats  map[T]*seat
	// slow is the number of items in work without a seat, and inWork that of all by namespace.
	slow   int
	inWork map[string]int
	// share is what a namespace may have in work while few items are slow.
	share int
}

// seat belongs to an item in work.
type seat struct {
	timer *time.Timer
	// givenBack is true if the item is slow.
	givenBack bool
}

// Workers returns the number of workers that a queue with a number of seats needs.
func Workers(seats int) int { return seats + maxSlow }

// New returns an empty queue.
func New[T comparable](o Options[T]) *Queue[T] {
	q := &Queue[T]{namespace: o.Namespace, free: o.Seats, seats: map[T]*seat{}, inWork: map[string]int{}, share: max(maxInWork, o.Seats)}
	q.changed = sync.NewCond(&q.mu)
	items := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: o.Name, Queue: storage[T]{q, o.Urgent}})
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueueWithConfig(o.RateLimiter, workqueue.TypedRateLimitingQueueConfig[T]{
		Name:          o.Name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Name: o.Name, Queue: items}),
	})
	return q
}

// Get waits for an item and a seat. It returns true if the queue was shut down.
func (q *Queue[T]) Get() (item T, shutDown bool) {
	q.mu.Lock()
	for !q.shutDown && !q.choose() {
		q.changed.Wait()
	}
	q.mu.Unlock()
	if item, shutDown = q.TypedRateLimitingInterface.Get(); !shutDown {
		q.sit(item)
	}
	return item, shutDown
}

// choose takes a seat for the item whose turn it is, if there are both.
func (q *Queue[T]) choose() bool {
	if q.free == 0 {
		return false
	}
	item, found := q.waiting.next(q.hasShareLeft)
	if found {
		q.free--
		q.inWork[q.namespace(item)]++
		q.chosen = append(q.chosen, item)
	}
	return found
}

// hasShareLeft reports whether the namespace may have one more item in work. All of them may become slow. The
// share shrinks while many are, so that one namespace after the other cannot take all workers.
func (q *Queue[T]) hasShareLeft(namespace string) bool {
	return q.inWork[namespace] < min(q.share, max(1, (maxSlow-q.slow)/2))
}

// sit starts the time for which an item in work keeps its seat.
func (q *Queue[T]) sit(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &seat{}
	s.timer = time.AfterFunc(slowAfter, func() { q.giveBack(item, s) })
	q.seats[item] = s
}

// giveBack gives the seat of a slow item to another one, for good.
func (q *Queue[T]) giveBack(item T, s *seat) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.seats[item] != s {
		return // The item was done at the same moment.
	}
	s.givenBack = true
	q.slow++
	q.free++
	q.changed.Signal()
}

// Done ends the work on an item.
func (q *Queue[T]) Done(item T) {
	q.leave(item)
	q.TypedRateLimitingInterface.Done(item)
}

func (q *Queue[T]) leave(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.seats[item]
	if s == nil {
		return
	}
	delete(q.seats, item)
	s.timer.Stop()
	namespace := q.namespace(item)
	if q.inWork[namespace]--; q.inWork[namespace] == 0 {
		delete(q.inWork, namespace)
	}
	if s.givenBack {
		q.slow--
	} else {
		q.free++
	}
	q.changed.Signal()
}

// Len returns the number of items that wait.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting.len() + len(q.chosen)
}

// ShutDown ends the workers. Items that wait are dropped: the next leader reconciles all.
func (q *Queue[T]) ShutDown() {
	q.mu.Lock()
	q.shutDown = true
	q.changed.Broadcast()
	q.mu.Unlock()
	q.TypedRateLimitingInterface.ShutDown()
}

// ShutDownWithDrain is ShutDown: controller-runtime does not drain.
func (q *Queue[T]) ShutDownWithDrain() { q.ShutDown() }

// storage is what client-go's queue sees: an item that waits becomes visible to it when it is chosen.
type storage[T comparable] struct {
	*Queue[T]
	urgent func(T) bool
}

// Push adds an item.
func (s storage[T]) Push(item T) {
	urgent := s.urgent(item)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.push(s.namespace(item), item, urgent)
	s.changed.Signal()
}

// Touch notes another addition of an item that waits.
func (s storage[T]) Touch(item T) {
	if !s.urgent(item) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.makeUrgent(s.namespace(item), item)
}

// Len returns the number of chosen items.
func (s storage[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.chosen)
}

// Pop takes out the first chosen item.
func (s storage[T]) Pop() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	item := s.chosen[0]
	s.chosen = s.chosen[1:]
	return item
}

// Package queue limits how many reconciliations of one namespace run at the same time, so that thousands of edits or a
// hanging webhook in one namespace delay no other.
package queue

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Namespaces is the number of namespaces whose seats can all be occupied at the same time.
const Namespaces = 16

// Seats are the seats of each namespace. A reconciliation occupies one. Seats is a source of the controller: a request
// without a seat leaves its worker and waits here, in order, for a seat of its namespace. Seats is also its rate limiter.
type Seats struct {
	// PerNamespace is the number of seats of a namespace.
	PerNamespace int
	// TypedRateLimiter delays the retries of requests.
	workqueue.TypedRateLimiter[reconcile.Request]

	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu         sync.Mutex
	namespaces map[string]*namespace
	// isReserved has every request that waits, and whether it has a reserved seat and is in the queue again.
	isReserved map[reconcile.Request]bool
}

type namespace struct {
	// occupied is the number of seats that are occupied or reserved.
	occupied int
	// line has the requests that wait for a seat, in order.
	line []waiting
}

type waiting struct {
	reconcile.Request
	since    time.Time
	isUrgent bool
}

// Start implements source.Source.
func (s *Seats) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.namespaces, s.isReserved = queue, map[string]*namespace{}, map[reconcile.Request]bool{}
	return nil
}

// Limit returns a reconciler that occupies a seat. A request without a free seat is reconciled when there is one: urgent
// requests first.
func (s *Seats) Limit(reconciler reconcile.Reconciler, isUrgent func(context.Context, reconcile.Request) bool) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		if !s.occupy(request, isUrgent(ctx, request)) {
			return reconcile.Result{}, nil
		}
		defer s.release(request)
		return reconciler.Reconcile(ctx, request)
	})
}

// occupy occupies a seat for a request, or has it wait for one.
func (s *Seats) occupy(request reconcile.Request, isUrgent bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[request.Namespace]
	if n == nil {
		n = &namespace{}
		s.namespaces[request.Namespace] = n
	}
	isReserved, isWaiting := s.isReserved[request]
	switch {
	case isReserved:
		delete(s.isReserved, request)
		return true
	case isWaiting && isUrgent:
		n.line[slices.IndexFunc(n.line, func(w waiting) bool { return w.Request == request })].isUrgent = true
	case isWaiting:
	case n.occupied < s.PerNamespace:
		n.occupied++
		return true
	default:
		s.isReserved[request] = false
		n.line = append(n.line, waiting{request, time.Now(), isUrgent})
	}
	return false
}

// release gives the seat to the urgent request that has waited for the longest time, or to another one.
func (s *Seats) release(request reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[request.Namespace]
	if len(n.line) > 0 {
		i := max(0, slices.IndexFunc(n.line, func(w waiting) bool { return w.isUrgent }))
		next := n.line[i].Request
		copy(n.line[1:], n.line[:i]) // The line behind it may be long.
		n.line = n.line[1:]
		s.isReserved[next] = true
		s.queue.Add(next)
	} else if n.occupied--; n.occupied == 0 {
		delete(s.namespaces, request.Namespace)
	}
}

// LongestWait returns how long the request has waited that waits for the longest time, or 0.
func (s *Seats) LongestWait() (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.namespaces {
		for _, w := range n.line {
			longest = max(longest, time.Since(w.since))
		}
	}
	return longest
}

// Forget does not forget the failures of a request that waits for a seat: controller-runtime calls it whenever a
// reconciliation returns no error.
func (s *Seats) Forget(request reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, isWaiting := s.isReserved[request]; !isWaiting {
		s.TypedRateLimiter.Forget(request)
	}
}

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
// without a seat leaves its worker and waits here, in order, for a seat of its namespace.
type Seats struct {
	// PerNamespace is the number of seats of a namespace.
	PerNamespace int

	queue workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu         sync.Mutex
	namespaces map[string]*namespace
}

type namespace struct {
	// occupied is the number of seats that are occupied or reserved.
	occupied int
	// urgent and others wait for a seat, each in order.
	urgent, others []waiting
	// isReserved has every request that waits, and whether it has a reserved seat and is in the queue again.
	isReserved map[reconcile.Request]bool
}

type waiting struct {
	reconcile.Request
	since time.Time
}

// Start implements source.Source.
func (s *Seats) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue, s.namespaces = queue, map[string]*namespace{}
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
		n = &namespace{isReserved: map[reconcile.Request]bool{}}
		s.namespaces[request.Namespace] = n
	}
	isReserved, isWaiting := n.isReserved[request]
	switch {
	case isReserved:
		delete(n.isReserved, request)
		return true
	case isWaiting:
		if isUrgent {
			n.promote(request)
		}
		return false
	case n.occupied < s.PerNamespace:
		n.occupied++
		return true
	}
	n.isReserved[request] = false
	if isUrgent {
		n.urgent = append(n.urgent, waiting{request, time.Now()})
	} else {
		n.others = append(n.others, waiting{request, time.Now()})
	}
	return false
}

// promote makes a request urgent that waits with the others.
func (n *namespace) promote(request reconcile.Request) {
	if i := slices.IndexFunc(n.others, func(w waiting) bool { return w.Request == request }); i >= 0 {
		n.urgent = append(n.urgent, n.others[i])
		n.others = slices.Delete(n.others, i, i+1)
	}
}

// release gives the seat to the urgent request that has waited for the longest time, or to another one.
func (s *Seats) release(request reconcile.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.namespaces[request.Namespace]
	for _, line := range []*[]waiting{&n.urgent, &n.others} {
		if len(*line) > 0 {
			next := (*line)[0].Request
			*line = (*line)[1:]
			n.isReserved[next] = true
			s.queue.Add(next)
			return
		}
	}
	if n.occupied--; n.occupied == 0 {
		delete(s.namespaces, request.Namespace)
	}
}

// LongestWait returns how long the request has waited that waits for the longest time, or 0.
func (s *Seats) LongestWait() (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.namespaces {
		for _, line := range [][]waiting{n.urgent, n.others} {
			for _, w := range line {
				longest = max(longest, time.Since(w.since))
			}
		}
	}
	return longest
}

// RateLimiter returns a rate limiter that does not forget the failures of a request that waits for a seat:
// controller-runtime has it do so whenever a reconciliation returns no error.
func (s *Seats) RateLimiter(limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimiter[reconcile.Request] {
	return rateLimiter{limiter, s}
}

type rateLimiter struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	seats *Seats
}

func (r rateLimiter) Forget(request reconcile.Request) {
	if !r.seats.isWaiting(request) {
		r.TypedRateLimiter.Forget(request)
	}
}

func (s *Seats) isWaiting(request reconcile.Request) (isWaiting bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.namespaces[request.Namespace]; n != nil {
		_, isWaiting = n.isReserved[request]
	}
	return isWaiting
}

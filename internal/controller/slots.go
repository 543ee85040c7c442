package controller

import (
	"context"
	"sync"
	"time"
)

const (
	// A call that takes longer than this waits without a slot, so that it delays no other Echo.
	// Most calls take milliseconds, but an admission webhook may take 30 s.
	slowCall = 250 * time.Millisecond

	// maxSlow is the maximum number of reconciliations that wait without a slot, and
	// maxSlowPerNamespace of those in one namespace. Each holds a request open, and some memory.
	maxSlow             = 240
	maxSlowPerNamespace = 24

	// saturatedRetry is when an Echo is tried again whose namespace has too many slow calls.
	saturatedRetry = 2 * time.Second
)

// slots bounds the number of concurrent reconciliations. A reconciliation gives its slot away
// while it waits for a slow call. No namespace may have more than its share of slow calls.
type slots struct {
	free chan struct{}

	mu     sync.Mutex
	slow   int
	slowIn map[string]int
}

func newSlots(count int) *slots {
	return &slots{free: make(chan struct{}, count), slowIn: map[string]int{}}
}

// slot belongs to one reconciliation.
type slot struct {
	slots     *slots
	namespace string
}

// enter waits for a slot. It returns false if the namespace has its share of slow calls.
func (s *slots) enter(ctx context.Context, namespace string) (*slot, bool) {
	s.mu.Lock()
	share := min(maxSlowPerNamespace, max(1, (maxSlow-s.slow)/2))
	saturated := s.slowIn[namespace] >= share
	s.mu.Unlock()
	if saturated {
		return nil, false
	}
	select {
	case s.free <- struct{}{}:
		return &slot{slots: s, namespace: namespace}, true
	case <-ctx.Done():
		return nil, false
	}
}

// leave frees the slot.
func (s *slot) leave() { <-s.slots.free }

// call calls the API server. While a slow call lasts, another reconciliation has the slot.
func (s *slot) call(call func() error) error {
	if s == nil {
		return call()
	}
	gone := make(chan struct{})
	timer := time.AfterFunc(slowCall, func() {
		s.count(1)
		s.leave()
		close(gone)
	})
	err := call()
	if !timer.Stop() {
		<-gone
		s.count(-1)
		s.slots.free <- struct{}{}
	}
	return err
}

func (s *slot) count(change int) {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	s.slots.slow += change
	if s.slots.slowIn[s.namespace] += change; s.slots.slowIn[s.namespace] == 0 {
		delete(s.slots.slowIn, s.namespace)
	}
}

// slotKey is the key of the slot in a context.
type slotKey struct{}

// call calls the API server with the slot of the context, if it has one.
func call(ctx context.Context, function func() error) error {
	s, _ := ctx.Value(slotKey{}).(*slot)
	return s.call(function)
}

package controller

import (
	"context"
	"slices"
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
// while it waits for a slow call. No namespace may have more than its share of slow calls, and the
// lines that wait for a slot take turns.
type slots struct {
	mu   sync.Mutex
	free int
	// waiting has a channel for each reconciliation that waits, by line. Its slot closes it.
	waiting map[line][]chan struct{}
	// turns are the lines that wait, the next one first.
	turns  []line
	slow   int
	slowIn map[string]int
}

// line is where a reconciliation waits for a slot. Each namespace has two lines: after a start of the
// operator, a new or changed Echo does not wait until all others have been reconciled.
type line struct {
	namespace string
	// newSpec is true if the status does not yet report about the newest spec of the Echo.
	newSpec bool
}

func newSlots(count int) *slots {
	return &slots{free: count, waiting: map[line][]chan struct{}{}, slowIn: map[string]int{}}
}

// acquire waits for a slot. It returns false if done is closed before; nil is never closed.
func (s *slots) acquire(done <-chan struct{}, l line) bool {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return true
	}
	if len(s.waiting[l]) == 0 {
		s.turns = append(s.turns, l)
	}
	turn := make(chan struct{})
	s.waiting[l] = append(s.waiting[l], turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-done:
	}
	s.mu.Lock()
	i := slices.Index(s.waiting[l], turn)
	if i >= 0 {
		s.waiting[l] = slices.Delete(s.waiting[l], i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // It has got a slot meanwhile.
		s.release()
	}
	return false
}

// release gives a slot to the line whose turn it is.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.turns) > 0 {
		l := s.turns[0]
		s.turns = s.turns[1:]
		waiting := s.waiting[l]
		if len(waiting) > 1 {
			s.waiting[l] = waiting[1:]
			s.turns = append(s.turns, l)
		} else {
			delete(s.waiting, l)
		}
		if len(waiting) > 0 {
			close(waiting[0])
			return
		}
	}
	s.free++
}

// slot belongs to one reconciliation.
type slot struct {
	slots *slots
	line  line
}

// enter waits for a slot. It returns false if the namespace has its share of slow calls, before or
// after the wait.
func (s *slots) enter(ctx context.Context, l line) (*slot, bool) {
	if s.saturated(l.namespace) {
		return nil, false
	}
	if !s.acquire(ctx.Done(), l) {
		return nil, false
	}
	if s.saturated(l.namespace) {
		s.release()
		return nil, false
	}
	return &slot{slots: s, line: l}, true
}

// saturated reports whether the namespace has its share of slow calls.
func (s *slots) saturated(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := min(maxSlowPerNamespace, max(1, (maxSlow-s.slow)/2))
	return s.slowIn[namespace] >= share
}

// leave frees the slot.
func (s *slot) leave() { s.slots.release() }

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
		s.slots.acquire(nil, s.line) // A reconciliation ends with a slot, as it began.
	}
	return err
}

func (s *slot) count(change int) {
	s.slots.mu.Lock()
	defer s.slots.mu.Unlock()
	s.slots.slow += change
	if s.slots.slowIn[s.line.namespace] += change; s.slots.slowIn[s.line.namespace] == 0 {
		delete(s.slots.slowIn, s.line.namespace)
	}
}

// slotKey is the key of the slot in a context.
type slotKey struct{}

// call calls the API server with the slot of the context, if it has one.
func call(ctx context.Context, function func() error) error {
	s, _ := ctx.Value(slotKey{}).(*slot)
	return s.call(function)
}

// Package backoff remembers when a write may be repeated, whatever events arrive. A rejected write is repeated
// at increasing intervals, because its cause, such as a quota, disappears without an event. A successful one,
// too, after a burst: an external writer may revert it each time.
package backoff

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// Min is the first pause. Each further one is twice as long as the one before.
	Min = time.Second
	// Max is the longest pause.
	Max = 30 * time.Second

	// slowestWrite is how long a webhook may take to fail.
	slowestWrite = 30 * time.Second
)

// Target is what a write changes.
type Target struct {
	// Owner is the UID of the object for which the write is.
	Owner types.UID
	// What names the written object, possibly with the purpose of the write.
	What string
}

// Backoff has the pauses of targets, in memory. R is what to report during a pause. The zero value is empty.
type Backoff[R any] struct {
	mu      sync.Mutex
	entries map[Target]*entry[R]
	swept   time.Time
}

// entry is about the recent writes of a target.
type entry[R any] struct {
	// generation of the owner for which the writes were. Those of another one are not paused.
	generation int64
	writes     int
	// next is the end of the pause, or the time of the last write without one.
	next  time.Time
	pause time.Duration
	// uncertain is true after a failure that is not reported.
	uncertain bool
	report    *R
}

// Wait returns how long the next write has to wait, and what to report meanwhile.
func (b *Backoff[R]) Wait(t Target, generation int64) (time.Duration, *R) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[t]
	if e == nil || e.generation != generation {
		return 0, nil
	}
	return max(0, time.Until(e.next)), e.report
}

// Last returns when the last write of a target was, or when the pause after it ends. It is zero without a
// recent write.
func (b *Backoff[R]) Last(t Target) (at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[t]; e != nil {
		at = e.next
	}
	return at
}

// Pause returns the last pause of a target. It is 0 without one.
func (b *Backoff[R]) Pause(t Target) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[t]; e != nil {
		return e.pause
	}
	return 0
}

// HasFailed reports whether the last write of a target has failed recently.
func (b *Backoff[R]) HasFailed(t Target) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[t]
	return e != nil && (e.uncertain || e.report != nil) && !e.expired(time.Now())
}

// Failed notes a failed write, and returns the pause before the next.
func (b *Backoff[R]) Failed(t Target, generation int64, report *R) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.written(t, generation)
	e.uncertain, e.report = false, report
	e.startPause()
	return e.pause
}

// FailedUncertainly notes a failure that may disappear by itself, and returns how many writes there were
// recently. The caller's own back-off, of at most Max, decides when the write is repeated.
func (b *Backoff[R]) FailedUncertainly(t Target, generation int64) (writes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.written(t, generation)
	e.uncertain, e.report, e.next = true, nil, time.Now()
	return e.writes
}

// Succeeded notes a successful write. After as many writes as the burst, and after each further one, there is
// a pause.
func (b *Backoff[R]) Succeeded(t Target, generation int64, burst int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.written(t, generation)
	e.uncertain, e.report = false, nil
	if e.writes >= burst {
		e.startPause()
	} else {
		e.pause, e.next = 0, time.Now()
	}
}

// Forget ends the pauses of a target.
func (b *Backoff[R]) Forget(t Target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, t)
}

// written counts a write of a target, and returns its entry.
func (b *Backoff[R]) written(t Target, generation int64) *entry[R] {
	now := time.Now()
	b.sweep(now)
	e := b.entries[t]
	if e == nil || e.generation != generation || e.expired(now) {
		e = &entry[R]{generation: generation}
		b.entries[t] = e
	}
	e.writes++
	return e
}

// sweep deletes expired entries from time to time.
func (b *Backoff[R]) sweep(now time.Time) {
	if b.entries == nil {
		b.entries = map[Target]*entry[R]{}
	}
	if now.Sub(b.swept) <= Max {
		return
	}
	b.swept = now
	for t, e := range b.entries {
		if e.expired(now) {
			delete(b.entries, t)
		}
	}
}

// expired reports whether the last write was so long ago that the next one is not a repetition: twice the
// time after which a repetition was to be expected.
func (e *entry[R]) expired(now time.Time) bool {
	unused := 2 * max(e.pause, Min)
	switch {
	case e.uncertain:
		unused = 2 * Max
	case e.report != nil: // The repetition may have failed late.
		unused += slowestWrite
	}
	return now.After(e.next.Add(unused))
}

func (e *entry[R]) startPause() {
	e.pause = min(max(2*e.pause, Min), Max)
	e.next = time.Now().Add(e.pause)
}

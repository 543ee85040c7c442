// Package backoff computes when a write may be repeated, whatever events arrive. A rejected write is repeated
// at increasing intervals, because its cause, such as a quota, disappears without an event. A successful one,
// too, after a burst: an external writer may revert it each time.
package backoff

import "time"

const (
	// Min is the first pause. Each further one is twice as long as the one before.
	Min = time.Second
	// Max is the longest pause.
	Max = 30 * time.Second

	// slowestWrite is how long a webhook may take to fail.
	slowestWrite = 30 * time.Second
)

// Pause is the pause between writes of the same kind, of which each comes when no time remains. The zero value has none. It
// forgets the writes when the next one is so late that it is not a repetition.
type Pause struct {
	writes       int
	length       time.Duration
	next, forget time.Time
}

// Remaining returns how long the next write has to wait.
func (p Pause) Remaining() time.Duration { return max(0, time.Until(p.next)) }

// Length returns the last pause, or 0 if the last write was not paused.
func (p Pause) Length() time.Duration { return p.length }

// RecordFailure records a failed write, and returns the pause before the next.
func (p *Pause) RecordFailure() time.Duration {
	p.count()
	p.start(slowestWrite) // The repetition may fail late.
	return p.length
}

// RecordTransientFailure records a failure that may disappear by itself, and returns the number of recent writes. The
// caller's own back-off, of at most Max, decides when the write is repeated.
func (p *Pause) RecordTransientFailure() int {
	p.count()
	p.forget = time.Now().Add(2 * Max)
	return p.writes
}

// RecordSuccess records a successful write. After as many writes as the burst, and after each further one, there is a
// pause.
func (p *Pause) RecordSuccess(burst int) {
	p.count()
	if p.writes >= burst {
		p.start(0)
		return
	}
	p.length, p.forget = 0, time.Now().Add(2*Min)
}

func (p *Pause) count() {
	if p.IsForgotten() {
		*p = Pause{}
	}
	p.writes++
}

// IsForgotten reports whether the next write is no repetition.
func (p Pause) IsForgotten() bool { return time.Now().After(p.forget) }

func (p *Pause) start(late time.Duration) {
	p.length = min(max(2*p.length, Min), Max)
	p.next = time.Now().Add(p.length)
	p.forget = p.next.Add(2*p.length + late)
}

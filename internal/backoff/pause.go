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

	// SlowestWrite is how long a webhook may take to fail.
	SlowestWrite = 30 * time.Second
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

// IsForgotten reports whether the next write is no repetition.
func (p Pause) IsForgotten() bool { return time.Now().After(p.forget) }

// Writes returns how many writes the next one repeats.
func (p Pause) Writes() int {
	if p.IsForgotten() {
		return 0
	}
	return p.writes
}

// Record records a write, and returns the pause before the next one: none until there were as many writes as the burst. A
// repetition may come later than the pause: late is how much.
func (p *Pause) Record(burst int, late time.Duration) time.Duration {
	if p.IsForgotten() {
		*p = Pause{}
	}
	p.writes++
	p.length = min(max(2*p.length, Min), Max)
	if p.writes < burst {
		p.length = 0
	}
	p.next = time.Now().Add(p.length)
	p.forget = p.next.Add(2*max(p.length, Min) + late)
	return p.length
}

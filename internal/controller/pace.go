package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// A rejection disappears only after a change elsewhere, for example of a quota, that no watch
	// reports. An external writer may change a child again after each correction. So the operator
	// repeats a write at increasing intervals between these bounds, whatever events arrive.
	minPace = time.Second
	maxPace = 30 * time.Second

	// slowestWrite is how long a webhook may take to fail.
	slowestWrite = 30 * time.Second

	// So many writes need no pause: corrections of the same drift, all corrections of a child, and
	// writes of the status, of which a rollout causes several.
	correctionBurst = 2
	childBurst      = 20
	statusBurst     = 5

	// repeatedDriftPace is the interval from which on the status reports repeated drift.
	repeatedDriftPace = 4 * minPace
)

// pace remembers, in memory, when the operator may repeat a write. It has entries only for writes
// that failed or were repeated recently.
type pace struct {
	mu      sync.Mutex
	entries map[target]*interval
	swept   time.Time
}

// target is what a write changes.
type target struct {
	echo types.UID
	// kind of the child, possibly with the drift that the write reverts, or "status".
	kind string
}

func targetOf(echo *echov1.Echo, kind string) target { return target{echo: echo.UID, kind: kind} }

// unwrittenStatus is the target of failed writes of the status.
func unwrittenStatus(echo *echov1.Echo) target { return targetOf(echo, "unwritten status") }

// serviceChange is the target of writes that change the Service for a new generation.
func serviceChange(echo *echov1.Echo) target { return targetOf(echo, "change of the Service") }

// interval is the time until the next write of a target.
type interval struct {
	// generation of the Echo for which the last write was. A newer one is written at once.
	generation int64
	next       time.Time
	delay      time.Duration
	writes     int
	// unreported is true after a failure that the status does not report.
	unreported bool
	// failure is what the status reports until the next write.
	failure *status.Failure
}

// wait returns how long the next write has to wait, and what to report meanwhile.
func (p *pace) wait(t target, generation int64) (time.Duration, *status.Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry := p.entries[t]
	if entry == nil || entry.generation != generation {
		return 0, nil
	}
	return max(0, time.Until(entry.next)), entry.failure
}

// last returns when the last write of a target was, or when the pause after it ends. It is zero without a
// recent write.
func (p *pace) last(t target) (at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if entry := p.entries[t]; entry != nil {
		at = entry.next
	}
	return at
}

// has reports whether there was a write of the target recently.
func (p *pace) has(t target) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry := p.entries[t]
	return entry != nil && !entry.idle(time.Now())
}

// interval returns the time between the last write of a target and the next.
func (p *pace) interval(t target) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if entry := p.entries[t]; entry != nil {
		return entry.delay
	}
	return 0
}

// failed notes a failed write, and returns how many writes there were recently. Only a write
// whose failure the status reports has to wait.
func (p *pace) failed(t target, generation int64, failure *status.Failure) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry := p.entry(t, generation)
	entry.failure, entry.unreported = failure, failure == nil
	if failure == nil {
		entry.next = time.Now()
	} else {
		entry.pause()
	}
	return entry.writes
}

// wrote notes a successful write. Writes in excess of the burst have to wait.
func (p *pace) wrote(t target, generation int64, burst int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	entry := p.entry(t, generation)
	entry.failure, entry.unreported = nil, false
	if entry.writes < burst {
		entry.delay, entry.next = 0, time.Now()
		return
	}
	entry.pause()
}

// forget ends the intervals of a target, because a write for a new generation succeeded.
func (p *pace) forget(t target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.entries, t)
}

// entry returns the entry of a target after another write. An entry starts again after two idle
// intervals.
func (p *pace) entry(t target, generation int64) *interval {
	now := time.Now()
	if now.Sub(p.swept) > maxPace {
		p.swept = now
		for other, entry := range p.entries {
			if entry.idle(now) {
				delete(p.entries, other)
			}
		}
	}
	entry := p.entries[t]
	if entry == nil || entry.generation != generation || entry.idle(now) {
		entry = &interval{generation: generation}
		if p.entries == nil {
			p.entries = map[target]*interval{}
		}
		p.entries[t] = entry
	}
	entry.writes++
	return entry
}

func (i *interval) idle(now time.Time) bool {
	unused := 2 * max(i.delay, minPace)
	switch {
	case i.unreported: // The back-off of controller-runtime decides when the write is repeated.
		unused = 2 * maxBackoff
	case i.failure != nil: // The next write may have failed late.
		unused += slowestWrite
	}
	return now.After(i.next.Add(unused))
}

func (i *interval) pause() {
	i.delay = min(max(2*i.delay, minPace), maxPace)
	i.next = time.Now().Add(i.delay)
}

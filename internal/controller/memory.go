package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// Writes up to these numbers are not delayed: corrections of the same drift, all corrections of a child, and
	// writes of the status, of which a rollout causes several.
	correctionBurst = 2
	childBurst      = 20
	statusBurst     = 5

	// repeatedDriftPause is the pause from which on the status reports repeated drift.
	repeatedDriftPause = 4 * backoff.Min

	// memoryTime is longer than any reconciliation, and than any pause with the time in which it counts.
	memoryTime = 2 * reconcileTimeout
)

// memory is what the operator remembers about an Echo between its reconciliations, of which one runs at a time.
type memory struct {
	// generation of the Echo to which children and the writes of the status belong.
	generation int64
	children   map[string]*childMemory // By name of the kind.
	// transitionWrites are those that change the status or the reason of a condition, and progressWrites the others.
	transitionWrites, progressWrites backoff.Pause
	// statusFailed is when the status was last not written.
	statusFailed time.Time
	// followed is that of the last reconciliation of the children.
	followed string
	// serviceChanged is when the operator last changed the Service for a new generation.
	serviceChanged time.Time
	// routeDeleted is when the operator last deleted the HTTPRoute.
	routeDeleted time.Time
	// podsRetried is when the operator last had pods created again for which a quota had no room.
	podsRetried time.Time
	used        time.Time
}

type childMemory struct {
	writes backoff.Pause
	// failure is what the status reports until the next write.
	failure *status.Failure
	// corrections are the writes that revert the same drift, by its description.
	corrections map[string]backoff.Pause
	// writer is the field manager of the last repeated drift.
	writer string
	// reads are those of an object of another owner.
	reads backoff.Pause
}

// memories are the memories of recently reconciled Echoes. The zero value is empty.
type memories struct {
	mu    sync.Mutex
	byUID map[types.UID]*memory
	swept time.Time
}

// forGeneration returns the memory of an Echo. A new generation forgets what belongs to an earlier one.
func (m *memories) forGeneration(echo *echov1.Echo) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.byUID == nil {
		m.byUID = map[types.UID]*memory{}
	}
	if now.Sub(m.swept) > memoryTime {
		m.swept = now
		maps.DeleteFunc(m.byUID, func(_ types.UID, e *memory) bool { return now.Sub(e.used) > memoryTime })
	}
	e := m.byUID[echo.UID]
	if e == nil {
		e = &memory{}
		m.byUID[echo.UID] = e
	}
	if e.generation != echo.Generation {
		e.generation, e.children, e.transitionWrites, e.progressWrites = echo.Generation, nil, backoff.Pause{}, backoff.Pause{}
	}
	e.used = now
	return e
}

// lacksStatus reports whether a recent write of the status failed, so that children may exist that it does not tell of.
func (m *memory) lacksStatus() bool { return time.Since(m.statusFailed) < 2*backoff.Max }

func (m *memory) entry(kind children.Kind) *childMemory {
	c := m.children[kind.Name]
	if c == nil {
		if m.children == nil {
			m.children = map[string]*childMemory{}
		}
		c = &childMemory{corrections: map[string]backoff.Pause{}}
		m.children[kind.Name] = c
	}
	return c
}

// mustWait reports whether the next write of a child has to wait, and reports why. A correction names the drift that the
// write would revert.
func (c *child) mustWait(correction string) bool {
	remembered := cmp.Or(c.memory.children[c.kind.Name], &childMemory{})
	pause := max(remembered.writes.Remaining(), remembered.corrections[correction].Remaining())
	if pause > 0 {
		c.failure = remembered.failure
		c.requeue(pause)
	}
	return pause > 0
}

// reportRepeatedDrift reports the drift that an external writer repeats, also just after its correction: a status that
// changed with each write would be paused itself, perhaps always while the child is as it should be.
func (c *child) reportRepeatedDrift() {
	remembered := c.memory.children[c.kind.Name]
	if remembered == nil || c.failure != nil {
		return
	}
	for _, fields := range slices.Sorted(maps.Keys(remembered.corrections)) {
		drift := remembered.corrections[fields]
		if pause := drift.Remaining(); pause > 0 && drift.Length() >= repeatedDriftPause {
			c.failure = repeatedDrift(c.kind, fields, remembered.writer)
			c.requeue(pause)
			return
		}
	}
}

// recordSuccess records a successful write of a child. A correction names the drift that it has reverted.
func (m *memory) recordSuccess(kind children.Kind, correction string) {
	if correction == "" {
		delete(m.children, kind.Name)
		return
	}
	c := m.entry(kind)
	c.failure = nil
	c.writes.Record(childBurst, 0)
	maps.DeleteFunc(c.corrections, func(_ string, p backoff.Pause) bool { return p.IsForgotten() })
	drift := c.corrections[correction]
	drift.Record(correctionBurst, 0)
	c.corrections[correction] = drift
}

// repeatedDrift reports that an external writer changes a child again after each correction.
func repeatedDrift(kind children.Kind, correction, writer string) *status.Failure {
	message := fmt.Sprintf("%s: an external writer (field manager %s) repeatedly changes %s", kind.Name, cmp.Or(writer, "unknown"), correction)
	switch {
	case correction == recreation:
		message = kind.Name + ": an external client repeatedly deletes it"
	case writer == children.ManagedBy:
		message += ": another operator may manage this namespace, too"
	}
	return &status.Failure{Reason: echov1.ReasonRepeatedDrift, Message: message}
}

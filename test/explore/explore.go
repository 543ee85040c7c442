package explore

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// transition is something that may happen next.
type transition struct {
	name string
	do   func(*world)
}

// family is a sequence of operations with what may happen beside them.
type family struct {
	name       string
	operations []operation
	left       budget
}

// maxLag is how long a watch may lag.
const maxLag = 10 * time.Second

// maxViolations ends an exploration early.
const maxViolations = 3

// explore visits every state of a family, nearest first, up to a number of states. It reports each state that must not be
// reached, with its story, also as a line for the table of TestStories.
func explore(t *testing.T, f family, maxStates int) {
	type node struct {
		*world
		id, depth int
	}
	start, first := time.Now(), newWorld(t, f)
	ids := map[uint64]int{first.fingerprint(): 0}
	trails := []*step{nil}
	canEnd := []bool{false} // by state
	var transitions [][2]int
	queue := []node{{first, 0, 0}}
	violations, ends, depth := 0, 0, 0
	report := func(finding string, trail *step) {
		violations++
		story := trail.story()
		t.Errorf("%s\n\t%s\nas a test:\n\t{%q, %#v},", finding, strings.Join(story, "\n\t"), f.name, story)
	}
	for len(queue) > 0 && violations < maxViolations {
		n := queue[0]
		queue, depth = queue[1:], n.depth
		after := n.successors(t, f)
		if len(after) == 0 {
			canEnd[n.id] = true
			ends++
			for _, finding := range n.checkEnd(t) {
				report(finding, n.trail)
			}
		}
		for _, w := range after {
			if len(w.findings) > 0 {
				report(w.findings[0], w.trail)
				continue
			}
			print := w.fingerprint()
			id, isKnown := ids[print]
			if !isKnown {
				if len(ids) >= maxStates {
					continue
				}
				id = len(ids)
				ids[print] = id
				trails, canEnd = append(trails, w.trail), append(canEnd, false)
				queue = append(queue, node{w, id, n.depth + 1})
			}
			transitions = append(transitions, [2]int{n.id, id})
		}
	}
	isComplete := len(ids) < maxStates && len(queue) == 0
	if isComplete && violations == 0 {
		for changed := true; changed; {
			changed = false
			for _, from := range slices.Backward(transitions) {
				if canEnd[from[1]] && !canEnd[from[0]] {
					canEnd[from[0]], changed = true, true
				}
			}
		}
		if i := slices.Index(canEnd, false); i >= 0 {
			report("the operator never stops", trails[i])
		}
	}
	t.Logf("%d states, %d transitions, depth %d, %d ends, complete %t, %s",
		len(ids), len(transitions), depth, ends, isComplete, time.Since(start).Round(time.Millisecond))
}

// successors returns the worlds after each transition.
func (w *world) successors(t *testing.T, f family) (all []*world) {
	follow := func(name string, do func(*world)) *world {
		after := w.clone()
		after.trail = &step{name, w.trail}
		do(after)
		after.flush()
		all = append(all, after)
		return after
	}
	steps := w.clusterSteps()
	for _, s := range steps {
		follow(s.name, s.do)
	}
	if w.next < len(f.operations) {
		o := f.operations[w.next]
		follow(o.name, func(w *world) {
			w.next++
			if err := o.do(t.Context(), w.otherClient()); client.IgnoreNotFound(err) != nil {
				t.Fatalf("%s: %v", o.name, err)
			}
		})
	}
	if w.queued {
		w.reconciliations(t, follow)
	} else if isLong := w.held != "" && w.again > w.heldFrom+maxLag; w.again != never && len(steps) == 0 && !isLong {
		follow("time passes", (*world).wait)
	}
	w.lags(follow)
	return all
}

// reconciliations adds a reconciliation without a fault, and those with one at each of its writes.
func (w *world) reconciliations(t *testing.T, follow func(string, func(*world)) *world) {
	var done *writes
	after := follow("the operator reconciles", func(w *world) { done = w.reconcile(t, none, 0) })
	if len(done.done) > 0 {
		after.trail.name += ": it " + strings.Join(done.done, ", ")
	}
	for i, write := range done.done {
		for _, f := range []fault{lost, rejected, crash, staleCrash} {
			left := w.left
			left.lags, left.faults, left.crashes = left.lags-costs[f].lags, left.faults-costs[f].faults, left.crashes-costs[f].crashes
			if min(left.lags, left.faults, left.crashes) >= 0 {
				follow(fmt.Sprintf("the operator reconciles; it %s, and %s", write, f), func(w *world) {
					w.left = left
					w.reconcile(t, f, i+1)
				})
			}
		}
	}
}

var costs = map[fault]budget{lost: {faults: 1}, rejected: {faults: 1}, crash: {crashes: 1}, staleCrash: {lags: 1, crashes: 1}}

// lags adds the starts of a lag, the changes that arrive during it, and its end.
func (w *world) lags(follow func(string, func(*world)) *world) {
	if w.held != "" {
		if len(w.withheld) > 1 {
			follow("the watch delivers the next "+w.held, func(w *world) {
				next := w.withheld[0]
				w.withheld = w.withheld[1:]
				w.deliver(next)
			})
		}
		follow("the watch of "+w.held+" is up to date", func(w *world) { w.held, w.heldFrom = "", 0 })
		return
	}
	if w.left.lags == 0 {
		return
	}
	for _, kind := range watchedKinds {
		if len(sorted(w.objects, kind)) > 0 {
			follow("the watch of "+kind+" starts to lag", func(w *world) { w.held, w.heldFrom, w.left.lags = kind, w.now, w.left.lags-1 })
		}
	}
}

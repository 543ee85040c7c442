package explore

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// transition is something that may happen next, or what a user or another client does.
type transition struct {
	name string
	do   func(*world)
}

// family is a sequence of operations with what may happen beside them.
type family struct {
	name       string
	operations []transition
	left       budget
}

// violation is a state that must not be reached, and how it was.
type violation struct {
	finding, family string
	story           []string
}

// String returns the story, and a line for the table of TestStories.
func (v violation) String() string {
	return fmt.Sprintf("%s\n\t%s\nas a test:\n\t{%q, %#v},", v.finding, strings.Join(v.story, "\n\t"), v.family, v.story)
}

// result is what an exploration has covered.
type result struct {
	states, transitions, depth, ends int
	isComplete                       bool
	took                             time.Duration
	violations                       []violation
}

func (r result) String() string {
	return fmt.Sprintf("%d states, %d transitions, depth %d, %d ends, complete %t, %s",
		r.states, r.transitions, r.depth, r.ends, r.isComplete, r.took.Round(time.Millisecond))
}

// maxLag is how long a watch may lag.
const maxLag = 10 * time.Second

// maxViolations ends an exploration early.
const maxViolations = 3

// explore visits every state of a family, nearest first, up to a number of states.
func explore(t *testing.T, f family, maxStates int) (r result) {
	start := time.Now()
	first := newWorld(t, f)
	type node struct {
		*world
		id, depth int
	}
	ids := map[uint64]int{first.fingerprint(): 0}
	ends := map[int]bool{}
	reachedFrom := [][]int32{nil} // by state, those from which a transition leads to it
	trails := []*step{nil}
	queue := []node{{first, 0, 0}}
	report := func(finding string, trail *step) {
		r.violations = append(r.violations, violation{finding, f.name, trail.story()})
	}
	for len(queue) > 0 && len(r.violations) < maxViolations {
		n := queue[0]
		queue = queue[1:]
		r.depth = n.depth
		after := n.successors(t, f)
		if len(after) == 0 {
			ends[n.id] = true
			r.ends++
			for _, finding := range n.checkEnd(t) {
				report(finding, n.trail)
			}
		}
		for _, w := range after {
			r.transitions++
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
				reachedFrom, trails = append(reachedFrom, nil), append(trails, w.trail)
				queue = append(queue, node{w, id, n.depth + 1})
			}
			reachedFrom[id] = append(reachedFrom[id], int32(n.id)) //nolint:gosec // Less than maxStates.
		}
	}
	r.states, r.isComplete = len(ids), len(ids) < maxStates && len(queue) == 0
	if r.isComplete && len(r.violations) == 0 {
		for id, reaches := range reaching(ends, reachedFrom) {
			if !reaches {
				report("the operator never stops", trails[id])
				break
			}
		}
	}
	r.took = time.Since(start)
	return r
}

// reaching returns for each state whether an end is reachable.
func reaching(ends map[int]bool, reachedFrom [][]int32) []bool {
	reaches := make([]bool, len(reachedFrom))
	var open []int
	for end := range ends {
		reaches[end] = true
		open = append(open, end)
	}
	for len(open) > 0 {
		id := open[len(open)-1]
		open = open[:len(open)-1]
		for _, before := range reachedFrom[id] {
			if !reaches[before] {
				reaches[before] = true
				open = append(open, int(before))
			}
		}
	}
	return reaches
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
			o.do(w)
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
		left := map[fault]int{lost: w.left.faults, rejected: w.left.faults, crash: w.left.crashes, staleCrash: min(w.left.crashes, w.left.lags)}
		for _, f := range []fault{lost, rejected, crash, staleCrash} {
			if left[f] > 0 {
				follow(fmt.Sprintf("the operator reconciles; it %s, and %s", write, f), func(w *world) {
					if f == staleCrash {
						w.left.lags--
					}
					if f == crash || f == staleCrash {
						w.left.crashes--
					} else {
						w.left.faults--
					}
					w.reconcile(t, f, i+1)
				})
			}
		}
	}
}

// lags adds the starts of a lag, the changes that arrive during it, and its end.
func (w *world) lags(follow func(string, func(*world)) *world) {
	if w.held != "" {
		if len(w.withheld[w.held]) > 1 {
			follow("the watch delivers the next "+w.held, func(w *world) { w.deliver(w.held) })
		}
		follow("the watch of "+w.held+" is up to date", func(w *world) { w.held, w.heldFrom = "", 0 })
		return
	}
	if w.left.lags == 0 {
		return
	}
	for _, kind := range watchedKinds {
		if hasKind(w.objects, kind) {
			follow("the watch of "+kind+" starts to lag", func(w *world) { w.held, w.heldFrom, w.left.lags = kind, w.now, w.left.lags-1 })
		}
	}
}

func hasKind(objects map[key]*item, kind string) bool {
	for k := range objects {
		if k.kind == kind {
			return true
		}
	}
	return false
}

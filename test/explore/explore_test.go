package explore

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

var maxStates = flag.Int("states", 3_000, "explore up to this `number` of states of each family")

// newWorld returns a world in which the Echo is ready, unless the family creates it.
func newWorld(t *testing.T, f family) *world {
	w := &world{
		objects: map[key]*item{}, cached: map[key]*item{}, specs: map[int64]echov1.EchoSpec{},
		operator: newOperator(), again: never, version: firstVersion,
	}
	if f.operations[0].name != create.name {
		if err := create.do(t.Context(), w.otherClient()); err != nil {
			t.Fatal(err)
		}
		w.flush()
		w.settle(t)
		w.now += time.Hour // What happened before is long ago.
	}
	w.left, w.trail = f.left, nil
	return w
}

// settle follows the first transition until nothing happens any more.
func (w *world) settle(t *testing.T) {
	for range 1000 {
		after := w.successors(t, family{})
		if len(after) == 0 {
			return
		}
		*w = *after[len(after)-1]
	}
	t.Fatalf("the world does not settle: %v", w.trail.story()[900:])
}

var families = []family{
	{"create", []operation{create}, budget{1, 1, 1}},
	{"edit", []operation{message("two")}, budget{1, 0, 0}},
	{"edit with a fault", []operation{message("two")}, budget{0, 1, 1}},
	{"edit with a crash", []operation{message("two")}, budget{1, 0, 1}},
	{"edit twice", []operation{message("two"), message("one")}, budget{1, 0, 0}},
	{"scale", []operation{scale(2)}, budget{1, 0, 1}},
	{"scale and edit", []operation{scale(2), message("two")}, budget{}},
	{"scale back", []operation{scale(2), scale(1)}, budget{1, 0, 0}},
	{"delete and create", []operation{remove, create}, budget{1, 0, 0}},
	{"drift", []operation{drift}, budget{1, 1, 0}},
	{"probe", []operation{unready}, budget{1, 0, 0}},
	{"route", []operation{route, plain}, budget{1, 0, 0}},
	{"create an override", []operation{createOverride, deploy}, budget{}},
	{"override", []operation{deploy, override, move}, budget{1, 0, 0}},
	{"override with a fault", []operation{override, deploy, plain}, budget{0, 1, 1}},
	{"override again", []operation{deploy, override, uninstall, deploy}, budget{}},
	{"verify", []operation{verify, plain}, budget{1, 0, 0}},
	{"verify elsewhere", []operation{verify, everyNode}, budget{}},
	{"lost label", []operation{unlabel, message("two")}, budget{1, 0, 0}},
}

func TestExplore(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			explore(t, f, *maxStates)
		})
	}
}

// TestStories follows stories in which a bug was found. A story ends early if the operator no longer does what it did in it.
func TestStories(t *testing.T) {
	for _, s := range []struct {
		family string
		steps  []string
	}{
		{"edit with a crash", []string{
			"the user edits the message to two",
			"the operator reconciles; it patches Deployment echo-hello, and the operator crashes after it, and reads the Echo as it was before the last edit",
			"the operator reconciles: it patches Deployment echo-hello, writes the status",
		}},
	} {
		f := families[slices.IndexFunc(families, func(f family) bool { return f.name == s.family })]
		w := newWorld(t, f)
		for _, step := range s.steps {
			all := w.successors(t, f)
			i := slices.IndexFunc(all, func(after *world) bool { return after.trail.name == step })
			if i < 0 {
				break
			}
			w = all[i]
		}
		findings := w.findings
		if len(findings) == 0 && len(w.successors(t, f)) == 0 {
			findings = w.checkEnd(t)
		}
		for _, finding := range findings {
			t.Errorf("%s: %s\n\t%s", s.family, finding, strings.Join(w.trail.story(), "\n\t"))
		}
	}
}

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// disturbance is something that disturbs the Echo "one".
type disturbance struct {
	name string
	// start puts it into effect in the subject namespace.
	start func(context.Context, *harness.Environment) (undo, error)
	// ofChildren is true if it needs the children.
	ofChildren bool
	// probes is true if its start and its end need a dry run, which other disturbances would prevent.
	probes bool
	// endless is true if it reacts to each write of the operator.
	endless bool
}

// stage is when disturbances begin in the life of an Echo.
type stage struct {
	name string
	// begin starts what happens to the Echo then.
	begin func(context.Context, *harness.Environment) error
}

const beforeCreation = "before creation"

var stages = []stage{
	{beforeCreation, func(ctx context.Context, e *harness.Environment) error {
		return e.CreateEcho(ctx, one, everyChild())
	}},
	{"while ready", func(context.Context, *harness.Environment) error { return nil }},
	{"at an edit", func(ctx context.Context, e *harness.Environment) error {
		return e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Port = "n", 81 })
	}},
	{"at a scale", func(ctx context.Context, e *harness.Environment) error {
		return e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Replicas = 3 })
	}},
}

// knownCombinations found defects. They have no third disturbance, and are the fixed core.
var knownCombinations = []string{
	"label of the Deployment removed + quota of Deployments, while ready",
	"image changed repeatedly + events dropped, while ready",
	"image changed repeatedly + events dropped, at an edit",
}

// combination is several disturbances of different classes at a stage.
type combination struct {
	stage        stage
	disturbances []disturbance
}

func (c combination) name() string {
	var names []string
	for _, d := range c.disturbances {
		names = append(names, d.name)
	}
	return strings.Join(names, " + ") + ", " + c.stage.name
}

// combinations disturbs an Echo in two or three ways at once: each pair of disturbances of different
// classes, at one of the stages. Every third pair has a third disturbance, of another class.
func combinations(o harness.Options) (all []harness.Scenario, err error) {
	known := map[string]combination{}
	n := 0
	for i, class := range disturbances {
		for j, other := range disturbances[i+1:] {
			third := slices.Concat(slices.Delete(slices.Clone(disturbances), i, i+1)...)
			third = slices.DeleteFunc(third, func(d disturbance) bool {
				return slices.ContainsFunc(disturbances[i+1+j], func(o disturbance) bool { return o.name == d.name })
			})
			for _, a := range class {
				for _, b := range other {
					for _, s := range stages {
						c := combination{s, []disturbance{a, b}}
						known[c.name()] = c
					}
					c := combination{stages[n%len(stages)], []disturbance{a, b}}
					if n%3 == 0 {
						c.disturbances = append(c.disturbances, third[n%len(third)])
					}
					n++
					if !slices.Contains(knownCombinations, c.name()) {
						all = append(all, harness.Scenario{Name: c.name(), Run: c.run})
					}
				}
			}
		}
	}
	if o.Short {
		all = nil
	}
	for _, name := range knownCombinations {
		c, exists := known[name]
		if !exists {
			return nil, fmt.Errorf("there is no combination %q", name)
		}
		all = append(all, harness.Scenario{Name: name, Run: c.run})
	}
	return all, nil
}

// run disturbs the Echo, ends the faults of the connection, checks the status and the writes, ends
// all other disturbances, and verifies that the Echo becomes as declared.
func (c combination) run(ctx context.Context, e *harness.Environment) (err error) {
	e.History.AllowLag()
	if err := e.CreateEcho(ctx, two, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	if err := e.AwaitReady(ctx, two); err != nil {
		return err
	}
	if c.stage.name != beforeCreation {
		if err := createReady(ctx, e); err != nil {
			return err
		}
	}
	var ends []undo
	end := func(ctx context.Context) (err error) {
		for _, undo := range slices.Backward(ends) {
			err = errors.Join(err, undo(ctx))
		}
		ends = nil
		return err
	}
	defer func() { err = errors.Join(err, end(context.WithoutCancel(ctx))) }() // If the scenario fails before.
	start := func(which func(disturbance) bool) error {
		for _, d := range c.disturbances {
			if !which(d) {
				continue
			}
			undo, err := d.start(ctx, e)
			if undo != nil { // Even after an error, it may be in effect.
				ends = append(ends, undo)
			}
			if err != nil {
				return fmt.Errorf("start %q: %w", d.name, err)
			}
		}
		return nil
	}
	if err := start(func(d disturbance) bool { return d.probes }); err != nil {
		return err
	}
	if err := start(func(d disturbance) bool { return !d.probes && !d.ofChildren }); err != nil {
		return err
	}
	if err := c.stage.begin(ctx, e); err != nil {
		return err
	}
	if err := start(func(d disturbance) bool { return d.ofChildren }); err != nil {
		return err
	}
	harness.Pause(ctx, observationPeriod)
	e.Proxy.SetPlan(nil)
	e.Proxy.Resume()
	if err := c.expectGuarantees(ctx, e); err != nil {
		return err
	}
	annotation := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: one}}
	unannotate := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null}}`))
	if err := errors.Join(end(ctx), e.Client.Patch(ctx, annotation, unannotate)); err != nil {
		return err
	}
	e.AllowWrites(oracle.PolicyWriteBound)
	if err := e.EditEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message, s.Port, s.Replicas = "o", 82, 2 }); err != nil {
		return err
	}
	return e.Verify(ctx)
}

const (
	// observationPeriod is how long writes are counted. There are few attempts to observe an Echo
	// that makes none, because a write that is in progress may still complete.
	observationPeriod   = 3 * time.Second
	observationAttempts = 4
	// annotations is how often the Echo is annotated meanwhile. Each annotation is an event.
	annotations = 15
)

// expectGuarantees expects an accurate status and few writes while the disturbances last, also after a
// restart.
func (c combination) expectGuarantees(ctx context.Context, e *harness.Environment) error {
	endless := slices.ContainsFunc(c.disturbances, func(d disturbance) bool { return d.endless })
	accurate := func() error {
		if err := e.AwaitReady(ctx, two); err != nil || endless {
			return err
		}
		return awaitAccurateStatus(ctx, e)
	}
	if err := accurate(); err != nil {
		return err
	}
	if err := c.expectFewWrites(ctx, e, endless); err != nil {
		return err
	}
	if err := e.Restart(); err != nil {
		return err
	}
	if err := e.AwaitStart(ctx); err != nil {
		return err
	}
	if err := c.expectFewWrites(ctx, e, endless); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	return accurate()
}

// expectFewWrites expects an Echo that is ready to cause no writes, and another one few, whatever events
// arrive.
func (c combination) expectFewWrites(ctx context.Context, e *harness.Environment, endless bool) error {
	echo, err := e.GetEcho(ctx, e.Subject, one)
	if err != nil {
		return err
	}
	retried := endless || oracle.CheckReadyNow(echo) != nil
	for range observationAttempts {
		before, start := len(e.Proxy.Writes()), time.Now()
		for i := range annotations {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/event":"%d"}}}`, i)
			if err := e.Client.Patch(ctx, echo.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
				return err
			}
			harness.Pause(ctx, observationPeriod/annotations)
		}
		bound := 0
		if retried {
			bound = oracle.RejectedWriteBound(time.Since(start))
		}
		writes := e.Proxy.Writes()
		if err = errors.Join(oracle.CheckWritesOf(one, writes[before:], bound), oracle.CheckWritesOf(one, writes, oracle.PolicyWriteBound)); err == nil {
			return nil
		}
	}
	return err
}

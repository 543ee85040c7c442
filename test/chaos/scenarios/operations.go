package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
)

// operations steps an Echo through the values of every field, and of pairs of fields.
func operations(o harness.Options) (all []harness.Scenario, err error) {
	core := []string{"replicas", "resources.limits", "targetPort and port"}
	add := func(name string, start map[string]any, changes []change) {
		if o.Short && !slices.Contains(core, name) {
			return
		}
		seed := o.Seed + uint64(len(all))
		all = append(all, harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
			return (&fieldSequence{Environment: e, spec: start, withoutFaults: o.Short, seed: seed}).run(ctx, changes)
		}})
	}
	sequences := fieldSequences()
	maps.Copy(sequences, fieldPairs())
	for _, name := range slices.Sorted(maps.Keys(sequences)) {
		add(name, map[string]any{"message": "m"}, sequences[name])
	}
	return all, nil
}

// fieldSequence steps the subject's Echo "one" through specs. After each step the subject has to
// be in the state of the control, in which an Echo is created with the same spec.
type fieldSequence struct {
	*harness.Environment
	spec          map[string]any
	withoutFaults bool
	seed          uint64
}

func (s *fieldSequence) run(ctx context.Context, changes []change) error {
	if err := s.allowWanted(nil, s.spec); err != nil {
		return err
	}
	if err := s.Client.Create(ctx, s.echo(s.Subject)); err != nil {
		return err
	}
	if err := s.compareWithNew(ctx); err != nil {
		return err
	}
	for i, c := range changes {
		if err := s.step(ctx, c); err != nil {
			return fmt.Errorf("step %d, set %s: %w", i+1, shorten(c.set), err)
		}
	}
	return s.Verify(ctx)
}

func shorten(set map[string]any) string {
	const limit = 200
	text := []rune(fmt.Sprint(set))
	return string(text[:min(len(text), limit)])
}

func (s *fieldSequence) step(ctx context.Context, c change) error {
	generations, err := s.ChildGenerations(ctx)
	if err != nil {
		return err
	}
	before := s.spec
	if s.spec, err = changed(before, c.set); err != nil {
		return err
	}
	if !s.withoutFaults {
		s.seed++
		s.Proxy.SetPlan(newRandomPlan(s.seed, rand.New(rand.NewPCG(s.seed, 0)))) //nolint:gosec // It must be reproducible.
		defer s.Proxy.SetPlan(nil)
	}
	err = s.replaceSpec(ctx)
	switch {
	case c.rejection != "":
		s.spec = before
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.rejection) {
			return fmt.Errorf("update of Echo %s: want a rejection that contains %q, got %w", one, c.rejection, orAccepted(err))
		}
		return errors.Join(s.Compare(ctx), s.expectGenerations(ctx, generations))
	case err != nil:
		return err
	case c.childRejection != "":
		return errors.Join(s.AwaitDegraded(ctx, harness.ConvergenceTimeout, s.Subject, one, echov1.ReasonRejected, c.childRejection),
			s.expectGenerations(ctx, generations))
	}
	if err := s.allowWanted(before, s.spec); err != nil {
		return err
	}
	return s.compareWithNew(ctx)
}

// compareWithNew compares the Echo with one that is created with the same spec.
func (s *fieldSequence) compareWithNew(ctx context.Context) error {
	if err := s.Clear(ctx, s.Control); err != nil {
		return err
	}
	if err := s.Client.Create(ctx, s.echo(s.Control)); err != nil {
		return err
	}
	if s.withoutFaults {
		return s.Settle(ctx)
	}
	harness.Pause(ctx, harness.SteadyPeriod)
	s.Proxy.SetPlan(nil)
	return errors.Join(s.Settle(ctx), s.ExpectNoWrites(ctx))
}

// allowWanted allows the creation of the children that the new spec asks for and the old does not.
func (s *fieldSequence) allowWanted(before, after map[string]any) error {
	was, is := &echov1.Echo{}, &echov1.Echo{}
	if err := errors.Join(decodeSpec(before, was), decodeSpec(after, is)); err != nil {
		return err
	}
	for _, kind := range kinds.Servers() {
		if kind.Wanted(is) && (before == nil || !kind.Wanted(was)) {
			s.AllowCreation(kind, one)
		}
	}
	return nil
}

func decodeSpec(spec map[string]any, echo *echov1.Echo) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &echo.Spec)
}

// errAccepted stands for the missing error of a request that should have been rejected.
var errAccepted = errors.New("no rejection")

func orAccepted(err error) error {
	if err == nil {
		return errAccepted
	}
	return err
}

// changed returns a copy of the spec, as JSON represents it, with other fields.
func changed(spec, set map[string]any) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	next := map[string]any{}
	if err := json.Unmarshal(text, &next); err != nil {
		return nil, err
	}
	for path, value := range set {
		names := strings.Split(path, ".")
		if value == nil {
			unstructured.RemoveNestedField(next, names...)
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		var plain any
		if err := json.Unmarshal(text, &plain); err != nil {
			return nil, err
		}
		if err := unstructured.SetNestedField(next, plain, names...); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func (s *fieldSequence) echo(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": echov1.GroupVersion.String(), "kind": "Echo",
		"metadata": map[string]any{"namespace": namespace, "name": one},
		"spec":     s.spec,
	}}
}

// replaceSpec replaces the spec, as `kubectl replace` does.
func (s *fieldSequence) replaceSpec(ctx context.Context) error {
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": s.spec}})
	if err != nil {
		return err
	}
	return s.Client.Patch(ctx, s.echo(s.Subject), client.RawPatch(types.JSONPatchType, patch))
}

// expectGenerations checks that the specs of the children did not change.
func (s *fieldSequence) expectGenerations(ctx context.Context, before map[string]int64) error {
	after, err := s.ChildGenerations(ctx)
	if err != nil {
		return err
	}
	return oracle.CheckGenerations(before, after)
}

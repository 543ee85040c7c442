package scenarios

import (
	"strings"
	"testing"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

func TestLiteral(t *testing.T) {
	for want, value := range map[string]any{
		`"a\"b"`: `a"b`, "7": int64(7), "true": true,
		`{"a": dyn(1), "b": dyn([dyn("x"), dyn({})])}`: map[string]any{"b": []any{"x", map[string]any{}}, "a": 1},
	} {
		if got := literal(value); got != want {
			t.Errorf("literal(%v) = %s, want %s", value, got, want)
		}
	}
}

func TestMutationAppliesOnlyWhereTheFieldCanBeChanged(t *testing.T) {
	spec, ports := kinds.Step{Name: "spec"}, kinds.Step{Name: "ports"}
	label := kinds.Field{{Name: "metadata"}, {Name: "labels"}, {Name: "a/b", IsKey: true}}
	for want, c := range map[string]kinds.Change{
		`has(object.spec) && has(object.spec.paused) ? [JSONPatch{op: "remove", path: "/spec/paused"}] : []`: {
			Action: kinds.Remove, Field: kinds.Field{spec, {Name: "paused"}}},
		`has(object.metadata) && has(object.metadata.labels) && "a/b" in object.metadata.labels ? [JSONPatch{op: "replace", path: "/metadata/labels/a~1b", value: "x"}] : []`: {
			Action: kinds.Set, Field: label, Value: "x"},
		`has(object.metadata) && has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels/a~1b", value: "x"}] : []`: {
			Action: kinds.Add, Field: label, Value: "x"},
		`has(object.spec) && has(object.spec.ports) && size(object.spec.ports) == 1 ? [JSONPatch{op: "add", path: "/spec/ports/0", value: {}}] : []`: {
			Action: kinds.Add, Field: kinds.Field{spec, ports, {Index: 0}}, Value: map[string]any{}, Items: 1},
		`has(object.spec) && has(object.spec.ports) && size(object.spec.ports) > 0 && has(object.spec.ports[0].port) ? [JSONPatch{op: "replace", path: "/spec/ports/0/port", value: 81}] : []`: {
			Action: kinds.Set, Field: kinds.Field{spec, ports, {Index: 0}, {Name: "port"}}, Value: int64(81)},
	} {
		if got := mutation(c); got != want {
			t.Errorf("mutation = %s, want %s", got, want)
		}
	}
}

func TestGeneratedPoliciesHaveUniqueNamesAndEveryOperation(t *testing.T) {
	names := map[string]bool{}
	for _, kind := range children.DifferentObjectKinds() {
		all, err := generatedPolicies(kind, uncontrolled(kind, "default"))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if names[c.name] {
				t.Errorf("two policies are named %q, want unique names", c.name)
			}
			names[c.name] = true
		}
	}
	for name := range names {
		what, _, _ := strings.Cut(name, " at ")
		for _, operation := range []string{"create", "update", "create and update"} {
			if !names[what+" at "+operation] {
				t.Errorf("%s: no policy at %s, want one", what, operation)
			}
		}
	}
}

func TestListedPoliciesHaveUniqueNames(t *testing.T) {
	names := map[string]bool{}
	for _, list := range listedPolicies {
		for _, c := range list.cases() {
			if names[c.name] {
				t.Errorf("two policies are named %q, want unique names", c.name)
			}
			names[c.name] = true
		}
	}
}

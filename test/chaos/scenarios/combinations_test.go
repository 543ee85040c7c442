package scenarios

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

func combinationNames(t *testing.T, o harness.Options) sets.Set[string] {
	t.Helper()
	all, err := combinations(o)
	if err != nil {
		t.Fatal(err)
	}
	names := sets.Set[string]{}
	for _, s := range all {
		names.Insert(s.Name)
	}
	return names
}

func TestCombinationsIncludeEveryPairOfDisturbances(t *testing.T) {
	long := combinationNames(t, harness.Options{Seed: 1})
	for i, class := range disturbances {
		for _, other := range disturbances[i+1:] {
			for _, a := range class {
				for _, b := range other {
					found := false
					for name := range long {
						found = found || strings.HasPrefix(name, a.name+" + "+b.name)
					}
					if !found {
						t.Errorf("no combination of %q and %q, want one", a.name, b.name)
					}
				}
			}
		}
	}
}

func TestCombinationsIncludeThoseThatFoundDefects(t *testing.T) {
	for _, o := range []harness.Options{{Seed: 1}, {Seed: 2}, {Seed: 3, Short: true}, {Seed: 4, Scenario: knownCombinations[0]}} {
		if names := combinationNames(t, o); !names.HasAll(knownCombinations...) {
			t.Errorf("combinations of %+v do not include all of %q", o, knownCombinations)
		}
	}
}

func TestTheSeedChoosesCombinations(t *testing.T) {
	first, second := combinationNames(t, harness.Options{Seed: 1, Short: true}), combinationNames(t, harness.Options{Seed: 2, Short: true})
	if first.Len() != shortCombinations+len(knownCombinations) || first.Equal(second) {
		t.Errorf("short forms of two seeds: %v and %v, want different ones", sets.List(first), sets.List(second))
	}
}

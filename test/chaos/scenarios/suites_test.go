package scenarios

import (
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

var root = filepath.Join("..", "..", "..")

func names(t *testing.T, suite harness.Suite, short bool) sets.Set[string] {
	t.Helper()
	all, err := suite.Scenarios(harness.Options{Root: root, Runs: 5, Seed: 1, Short: short})
	if err != nil {
		t.Fatal(err)
	}
	found := sets.Set[string]{}
	for _, s := range all {
		if found.Has(s.Name) {
			t.Errorf("%s: two scenarios are named %q, want unique names", suite.Name, s.Name)
		}
		found.Insert(s.Name)
	}
	t.Logf("%s, short %t: %d scenarios", suite.Name, short, len(found))
	return found
}

func TestEverySuiteHasAFixedCore(t *testing.T) {
	for _, suite := range Suites {
		all, core := names(t, suite, false), names(t, suite, true)
		if len(core) == 0 || !all.IsSuperset(core) {
			t.Errorf("%s: core %q, want some of %d scenarios, which lack %q", suite.Name, sets.List(core), len(all), sets.List(core.Difference(all)))
		}
	}
}

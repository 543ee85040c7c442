package scenarios

import (
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

var root = filepath.Join("..", "..", "..")

func TestEverySuiteHasScenariosWithUniqueNames(t *testing.T) {
	for _, short := range []bool{false, true} {
		for _, suite := range Suites {
			t.Run(fmt.Sprintf("%s, short: %v", suite.Name, short), func(t *testing.T) {
				all, err := suite.Scenarios(harness.Options{Root: root, Runs: 2, Seed: 1, Short: short})
				if err != nil {
					t.Fatal(err)
				}
				if len(all) == 0 {
					t.Error("no scenarios")
				}
				names := sets.Set[string]{}
				for _, s := range all {
					if names.Has(s.Name) {
						t.Errorf("two scenarios are named %q, want unique names", s.Name)
					}
					names.Insert(s.Name)
				}
			})
		}
	}
}

func TestShortFormHasOnlyScenariosOfTheLongForm(t *testing.T) {
	for _, suite := range Suites {
		long, err := suite.Scenarios(harness.Options{Root: root, Runs: 2, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		names := sets.Set[string]{}
		for _, s := range long {
			names.Insert(s.Name)
		}
		short, err := suite.Scenarios(harness.Options{Root: root, Runs: 2, Seed: 1, Short: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range short {
			if !names.Has(s.Name) {
				t.Errorf("%s: scenario %q of the short form is not in the long form", suite.Name, s.Name)
			}
		}
	}
}

func TestEveryFieldOfTheCRDHasASequence(t *testing.T) {
	if err := checkFields(root); err != nil {
		t.Error(err)
	}
}

package mutants

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/scenarios"
)

var root = filepath.Join("..", "..", "..")

// guarantees is the number of guarantees in docs/guarantees.md without the last: the campaign has no clients, and the
// end-to-end tests have.
const guarantees = 8

func TestEveryMutantCompilesAndEveryGuaranteeHasOne(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	for guarantee := 1; guarantee <= guarantees; guarantee++ {
		if !slices.ContainsFunc(all, func(m Mutant) bool { return m.Guarantee == guarantee }) {
			t.Errorf("guarantee %d: no mutant violates it", guarantee)
		}
	}
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			if !slices.ContainsFunc(scenarios.Suites, func(s harness.Suite) bool { return s.Name == m.Suite }) {
				t.Errorf("suite = %q, want one of the campaign's suites", m.Suite)
			}
			if _, err := m.overlay(root, t.TempDir()); err != nil {
				t.Error(err)
			}
			if testing.Short() {
				return // The compiler takes several seconds for each.
			}
			// With several packages, the Go command does not link programs.
			if err := m.build(t.Context(), root, t.TempDir(), "./cmd", "./internal/controller"); err != nil {
				t.Error(err)
			}
		})
	}
}

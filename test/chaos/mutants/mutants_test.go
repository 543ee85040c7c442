package mutants

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/scenarios"
)

// guarantees is the number of guarantees in docs/reliability.md.
const guarantees = 8

var root = filepath.Join("..", "..", "..")

func all(t *testing.T) []Mutant {
	t.Helper()
	mutants, err := All()
	if err != nil {
		t.Fatal(err)
	}
	return mutants
}

func isSuite(name string) bool {
	return slices.ContainsFunc(scenarios.Suites, func(s harness.Suite) bool { return s.Name == name })
}

func TestEveryPatchAppliesCompilesAndNamesAKnownSuite(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.file, func(t *testing.T) {
			t.Parallel()
			if !isSuite(m.Suite) {
				t.Errorf("suite = %q, want one of the campaign's suites", m.Suite)
			}
			if m.Guarantee < 1 || m.Guarantee > guarantees {
				t.Errorf("guarantee = %d, want 1 to %d", m.Guarantee, guarantees)
			}
			directory := t.TempDir()
			copies, err := m.apply(t.Context(), root, directory)
			if err != nil {
				t.Fatal(err)
			}
			if len(copies) == 0 {
				t.Error("the patch changes no file")
			}
			packages := []string{"./internal/..."}
			for original, mutated := range copies {
				expectChanged(t, original, mutated)
				packages = append(packages, filepath.Dir(original))
			}
			if err := m.compile(t.Context(), root, directory, copies, packages...); err != nil {
				t.Error(err)
			}
		})
	}
}

// expectChanged expects the mutated file to differ from the original.
func expectChanged(t *testing.T, original, mutated string) {
	t.Helper()
	before, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(mutated)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(before, after) {
		t.Errorf("%s: the patch changes nothing", original)
	}
}

func TestEveryGuaranteeHasAMutant(t *testing.T) {
	for guarantee := 1; guarantee <= guarantees; guarantee++ {
		if !slices.ContainsFunc(all(t), func(m Mutant) bool { return m.Guarantee == guarantee }) {
			t.Errorf("guarantee %d: no mutant violates it", guarantee)
		}
	}
}

func TestApplyFailsForAPatchOfOtherCode(t *testing.T) {
	m := Mutant{file: "other", patch: []byte("--- a/go.mod\n+++ b/go.mod\n@@ -1 +1 @@\n-module other\n+module another\n")}
	if _, err := m.apply(t.Context(), root, t.TempDir()); err == nil {
		t.Error("apply succeeded, want an error, because go.mod has no such line")
	}
}

func TestParseRequiresAHeader(t *testing.T) {
	const complete = "Mutant: fails\nGuarantee: 7\nSuite: schedules\n\n--- a/go.mod\n"
	m, err := parse("fails", []byte(complete))
	if err != nil || m.Name != "fails" || m.Guarantee != 7 || m.Suite != "schedules" {
		t.Errorf("parse = %+v, %v, want all fields", m, err)
	}
	for _, line := range []string{"Mutant: fails\n", "Guarantee: 7\n", "Suite: schedules\n"} {
		if _, err := parse("incomplete", []byte(strings.Replace(complete, line, "", 1))); err == nil {
			t.Errorf("parse without %q succeeded, want an error", line)
		}
	}
}

func TestSampleHasMutantsOfDifferentGuarantees(t *testing.T) {
	mutants := all(t)
	if got := sample(mutants, 0); len(got) != len(mutants) {
		t.Errorf("sample of seed 0 has %d mutants, want all %d", len(got), len(mutants))
	}
	chosen := map[string]bool{}
	for seed := uint64(1); seed < 200; seed++ {
		got := sample(mutants, seed)
		if len(got) != sampleSize || got[0].Guarantee == got[1].Guarantee {
			t.Fatalf("sample of seed %d = %v, want %d mutants of different guarantees", seed, got, sampleSize)
		}
		for _, m := range got {
			chosen[m.Name] = true
		}
	}
	if len(chosen) != len(mutants) {
		t.Errorf("samples of 199 seeds have %d mutants, want all %d", len(chosen), len(mutants))
	}
	if got := sample(mutants, 1<<63+17); len(got) != sampleSize {
		t.Errorf("sample of a large seed has %d mutants, want %d", len(got), sampleSize)
	}
}

func TestSuitesOfTheShortFormAreTheOneThatHasToCatchTheMutant(t *testing.T) {
	m := Mutant{file: "m", Suite: "schedules"}
	if got := m.suites(scenarios.Suites, true); len(got) != 1 || got[0].Name != "schedules" {
		t.Errorf("suites of the short form = %v, want schedules only", got)
	}
	serial := 0
	for _, suite := range scenarios.Suites {
		if suite.MaxWorkers == 1 {
			serial++
		}
	}
	if got, want := len(m.suites(scenarios.Suites, false)), len(scenarios.Suites)-serial; got != want {
		t.Errorf("suites of the long form: %d, want all %d that are not serial", got, want)
	}
}

func TestEvaluate(t *testing.T) {
	mutant := Mutant{file: "m", Name: "fails", Suite: "schedules"}
	for name, test := range map[string]struct {
		mutant Mutant
		caught map[string]string
		right  bool
	}{
		"mutant is caught by its suite":               {mutant, map[string]string{"schedules": "seed 1", "operations": ""}, true},
		"mutant is missed by its suite":               {mutant, map[string]string{"schedules": "", "operations": "port"}, false},
		"suite that has to catch it did not run":      {mutant, map[string]string{"operations": ""}, true},
		"control is caught by no suite":               {control, map[string]string{"schedules": "", "operations": ""}, true},
		"control is caught, so the suite is at fault": {control, map[string]string{"schedules": "seed 1"}, false},
	} {
		if _, right := test.mutant.evaluate(test.caught); right != test.right {
			t.Errorf("%s: right = %v, want %v", name, right, test.right)
		}
	}
}

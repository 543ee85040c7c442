package mutants

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// control is the operator without a planted bug. A suite that catches it is broken.
var control = Mutant{Name: "has no planted bug"}

func (m Mutant) isControl() bool { return m.file == "" }

// convergence is how long a mutant gets to converge. It is longer than the operator's longest retry
// interval of 30 s, but no longer than necessary, because many mutants never converge.
const convergence = 40 * time.Second

// sampleSize is the number of mutants in the short form.
const sampleSize = 2

// Result is which suites caught a mutant.
type Result struct {
	// Mutant is its name, Guarantee the number of the guarantee that it violates.
	Mutant    string `json:"mutant"`
	Guarantee int    `json:"guarantee"`
	// Caught has the scenario that caught it for each suite that ran, or an empty string.
	Caught map[string]string `json:"caught"`
}

// Run runs mutation tests: in the short form a sample of the mutants, each in the suite that has to
// catch it, in the long form the control and all mutants in all suites.
func Run(ctx context.Context, h *harness.Harness, suites []harness.Suite, o harness.Options) (results []Result, err error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	chosen := append([]Mutant{control}, all...)
	if o.Short {
		chosen = sample(all, o.Seed)
		fmt.Printf("%d of %d mutants, chosen by seed %d\n", len(chosen), len(all), o.Seed)
	}
	h.Convergence = convergence
	wrong := 0
	for _, m := range chosen {
		if !strings.Contains(m.Name, o.Scenario) {
			continue
		}
		result, err := m.run(ctx, h, m.suites(suites, o.Short), o)
		if err != nil {
			return results, err
		}
		results = append(results, result)
		message, right := m.evaluate(result.Caught)
		if message != "" {
			fmt.Println(message)
		}
		if !right {
			wrong++
		}
	}
	if wrong > 0 {
		return results, fmt.Errorf("%d mutation tests failed", wrong)
	}
	return results, nil
}

// sample chooses mutants that violate different guarantees, by the seed. Seed 0 chooses all.
func sample(all []Mutant, seed uint64) (chosen []Mutant) {
	if seed == 0 {
		return all
	}
	taken := map[int]bool{}
	for _, i := range rand.New(rand.NewPCG(seed, seed)).Perm(len(all)) { //nolint:gosec // It must be reproducible.
		if m := all[i]; !taken[m.Guarantee] && len(chosen) < sampleSize {
			taken[m.Guarantee] = true
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// suites returns the suites that run the mutant: in the short form the one that has to catch it. The
// last ones come first, because they mostly wait.
func (m Mutant) suites(all []harness.Suite, short bool) (chosen []harness.Suite) {
	for _, suite := range slices.Backward(all) {
		if suite.MaxWorkers != 1 && (!short || suite.Name == m.Suite) {
			chosen = append(chosen, suite)
		}
	}
	return chosen
}

// run builds the mutant, and runs it in the suites until each has caught it.
func (m Mutant) run(ctx context.Context, h *harness.Harness, suites []harness.Suite, o harness.Options) (Result, error) {
	result := Result{Mutant: m.Name, Guarantee: m.Guarantee, Caught: map[string]string{}}
	program := h.Program
	if !m.isControl() {
		var err error
		if program, err = m.build(ctx, o.Root, h.Directory); err != nil {
			return result, err
		}
	}
	o.Scenario, o.Short, o.Seed, o.StopAtFailure = "", true, 1, true
	suiteResults, err := h.Run(ctx, suites, o, program)
	for _, suite := range suiteResults {
		result.Caught[suite.Suite] = strings.Join(suite.Failures, "; ")
	}
	return result, err
}

// evaluate returns whether the right suites caught the mutant: the one that has to, if it ran, and
// none for the control.
func (m Mutant) evaluate(caught map[string]string) (message string, right bool) {
	if m.isControl() {
		for suite, scenario := range caught {
			if scenario != "" {
				return fmt.Sprintf("WRONG control: %s caught an operator that %s, in %q", suite, m.Name, scenario), false
			}
		}
		return "", true
	}
	switch scenario, ran := caught[m.Suite]; {
	case !ran:
		return "", true
	case scenario == "":
		return fmt.Sprintf("MISSED %s: want %s to catch it", m.Name, m.Suite), false
	default:
		return fmt.Sprintf("caught %s: %s, %s", m.Name, m.Suite, scenario), true
	}
}

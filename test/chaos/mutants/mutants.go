package mutants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// convergence is how long a mutant gets to converge. It is longer than the operator's longest retry
// interval of 30 s, but no longer than necessary, because many mutants never converge.
const convergence = 40 * time.Second

// Result is which scenario caught a mutant.
type Result struct {
	// Mutant is its name, Guarantee the number of the guarantee that it violates.
	Mutant    string `json:"mutant"`
	Guarantee int    `json:"guarantee"`
	// Suite is the suite that ran it, and Caught the scenario that caught it, or empty.
	Suite  string `json:"suite"`
	Caught string `json:"caught"`
}

// Run runs each mutant whose name contains the text of the options in the fixed core of its suite, which
// has to catch it. Before that, it runs the operator without a planted bug in the same scenarios, in
// which it must not be caught.
func Run(ctx context.Context, h *harness.Harness, suites []harness.Suite, o harness.Options) (results []Result, err error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	text := o.Scenario
	o.Scenario, o.Short, o.StopAtFailure = "", true, true
	h.Convergence = convergence
	var wrong []string
	for _, suite := range suites {
		var mutants []Mutant
		for _, m := range all {
			if m.Suite == suite.Name && strings.Contains(m.Name, text) {
				mutants = append(mutants, m)
			}
		}
		if len(mutants) == 0 {
			continue
		}
		control, err := run(ctx, h, suite, o, h.Program)
		if err != nil {
			return results, err
		}
		if control != "" {
			wrong = append(wrong, fmt.Sprintf("%s fails without a planted bug, in %q", suite.Name, control))
		}
		for _, m := range mutants {
			directory, err := os.MkdirTemp(h.Directory, "mutant-")
			if err != nil {
				return results, err
			}
			// Its name becomes the field manager of its writes.
			program := filepath.Join(directory, "manager")
			if err := m.build(ctx, o.Root, directory, "-o", program, "./cmd"); err != nil {
				return results, err
			}
			caught, err := run(ctx, h, suite, o, program)
			if err != nil {
				return results, err
			}
			results = append(results, Result{Mutant: m.Name, Guarantee: m.Guarantee, Suite: m.Suite, Caught: caught})
			fmt.Printf("mutant that %s: %s caught it in %q\n", m.Name, m.Suite, caught)
			if caught == "" {
				wrong = append(wrong, fmt.Sprintf("%s did not catch the mutant that %s", m.Suite, m.Name))
			}
		}
	}
	if len(wrong) > 0 {
		return results, fmt.Errorf("mutation tests: %s", strings.Join(wrong, "; "))
	}
	return results, nil
}

// run runs a suite against a program, and returns the scenarios that failed.
func run(ctx context.Context, h *harness.Harness, suite harness.Suite, o harness.Options, program string) (failed string, err error) {
	results, err := h.Run(ctx, []harness.Suite{suite}, o, program)
	if err != nil {
		return "", err
	}
	return strings.Join(results[0].Failures, "; "), nil
}

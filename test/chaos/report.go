package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/mutants"
	"github.com/kkloud-io/echo-operator/test/chaos/scenarios"
)

// report is what the campaign did and found.
type report struct {
	Suites  []harness.SuiteResult `json:"suites,omitempty"`
	Mutants []mutants.Result      `json:"mutants,omitempty"`
}

func (r *report) print(w io.Writer) {
	if len(r.Suites) > 0 {
		r.printSuites(w)
	}
	if len(r.Mutants) > 0 {
		r.printMutants(w)
	}
}

func (r *report) printSuites(w io.Writer) {
	faults := map[string]int{}
	_, _ = fmt.Fprintln(w)
	printRow(w, "suite", "scenarios", "failed", "faults", "restarts", "time")
	printRow(w, slices.Repeat([]string{"---"}, 6)...)
	for _, s := range r.Suites {
		sum := 0
		for class, count := range s.Faults {
			faults[class] += count
			sum += count
		}
		took := time.Duration(s.Seconds * float64(time.Second)).Round(time.Second)
		printRow(w, s.Suite, fmt.Sprint(s.Scenarios), fmt.Sprint(s.Failed), fmt.Sprint(sum), fmt.Sprint(s.Restarts), took.String())
	}
	var classes []string
	for _, class := range slices.Sorted(maps.Keys(faults)) {
		classes = append(classes, fmt.Sprintf("%s: %d", class, faults[class]))
	}
	if len(classes) > 0 {
		_, _ = fmt.Fprintf(w, "\nFaults: %s.\n", strings.Join(classes, ", "))
	}
	for _, s := range r.Suites {
		for _, m := range s.Measurements {
			_, _ = fmt.Fprintf(w, "%s: %.1f s (limit %.0f s)\n", m.Name, m.Seconds, m.Limit)
		}
	}
}

// printMutants prints which suite caught which mutant.
func (r *report) printMutants(w io.Writer) {
	columns := []string{"mutant", "guarantee"}
	for _, suite := range scenarios.Suites {
		columns = append(columns, suite.Name)
	}
	_, _ = fmt.Fprintln(w)
	printRow(w, columns...)
	printRow(w, slices.Repeat([]string{"---"}, len(columns))...)
	for _, m := range r.Mutants {
		cells := []string{m.Mutant, fmt.Sprint(m.Guarantee)}
		for _, suite := range scenarios.Suites {
			scenario, ran := m.Caught[suite.Name]
			switch {
			case !ran:
				cells = append(cells, "")
			case scenario == "":
				cells = append(cells, "–")
			default:
				cells = append(cells, "caught")
			}
		}
		printRow(w, cells...)
	}
}

func printRow(w io.Writer, cells ...string) {
	_, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

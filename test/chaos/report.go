package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/mutants"
)

// report is what the campaign did and found.
type report struct {
	Suites  []harness.SuiteResult `json:"suites,omitempty"`
	Mutants []mutants.Result      `json:"mutants,omitempty"`
}

func (r *report) print(w io.Writer) {
	if len(r.Suites) > 0 {
		printRow(w, "suite", "scenarios", "failed", "faults", "restarts", "time")
		printRow(w, slices.Repeat([]string{"---"}, 6)...)
	}
	for _, s := range r.Suites {
		faults := 0
		for _, count := range s.Faults {
			faults += count
		}
		took := time.Duration(s.Seconds * float64(time.Second)).Round(time.Second)
		printRow(w, s.Suite, fmt.Sprint(s.Scenarios), fmt.Sprint(s.Failed), fmt.Sprint(faults), fmt.Sprint(s.Restarts), took.String())
	}
	for _, s := range r.Suites {
		for _, m := range s.Measurements {
			_, _ = fmt.Fprintf(w, "%s: %.1f s (limit %.0f s)\n", m.Name, m.Seconds, m.Limit)
		}
	}
	if len(r.Mutants) > 0 {
		printRow(w, "mutant", "guarantee", "suite", "caught in")
		printRow(w, slices.Repeat([]string{"---"}, 4)...)
	}
	for _, m := range r.Mutants {
		printRow(w, m.Mutant, fmt.Sprint(m.Guarantee), m.Suite, m.Caught)
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

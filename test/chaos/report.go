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
)

// report is what a campaign did and found.
type report struct {
	Parts   []partResult   `json:"parts,omitempty"`
	Mutants []mutantResult `json:"mutants,omitempty"`
}

// partResult is what became of one part.
type partResult struct {
	Part      string         `json:"part"`
	Scenarios int            `json:"scenarios"`
	Failed    int            `json:"failed"`
	Restarts  int            `json:"restarts"`
	Faults    map[string]int `json:"faults,omitempty"`
	Seconds   float64        `json:"seconds"`
	Failures  []string       `json:"failures,omitempty"`
	Figures   []figure       `json:"figures,omitempty"`
}

// figure is something measured.
type figure struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
	// Allowed is the most that is promised, in seconds.
	Allowed float64 `json:"allowed"`
}

func (r *partResult) add(o outcome, tell bool) {
	r.Scenarios++
	r.Restarts += o.restarts
	r.Figures = append(r.Figures, o.figures...)
	for class, count := range o.faults {
		r.Faults[class] += count
	}
	if o.err != nil {
		r.Failed++
		r.Failures = append(r.Failures, o.name)
	}
	if o.err != nil && tell {
		replay := fmt.Sprintf("make chaos PART=%q SCENARIO=%q", r.Part, o.name)
		if seed, isSchedule := strings.CutPrefix(o.name, "seed "); isSchedule {
			replay = "make chaos SEED=" + seed
		}
		fmt.Printf("FAILED %s, %s: %v\nreplay: %s\n", r.Part, o.name, o.err, replay)
	}
}

func (r *report) print(w io.Writer) {
	faults := map[string]int{}
	if len(r.Parts) > 0 {
		_, _ = fmt.Fprint(w, "\n| part | scenarios | failed | faults | restarts | time |\n|---|---|---|---|---|---|\n")
	}
	for _, p := range r.Parts {
		sum := 0
		for class, count := range p.Faults {
			faults[class] += count
			sum += count
		}
		_, _ = fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %s |\n", p.Part, p.Scenarios, p.Failed, sum, p.Restarts,
			time.Duration(p.Seconds*float64(time.Second)).Round(time.Second))
	}
	if len(faults) > 0 {
		var classes []string
		for _, class := range slices.Sorted(maps.Keys(faults)) {
			classes = append(classes, fmt.Sprintf("%s: %d", class, faults[class]))
		}
		_, _ = fmt.Fprintf(w, "\nFaults: %s.\n", strings.Join(classes, ", "))
	}
	for _, p := range r.Parts {
		for _, f := range p.Figures {
			_, _ = fmt.Fprintf(w, "%s: %.1f s (at most %.0f s)\n", f.What, f.Seconds, f.Allowed)
		}
	}
	printMutants(w, r.Mutants)
}

func (r *report) write(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

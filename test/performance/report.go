package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// result is one row of the report.
type result struct {
	Name string `json:"name"`
	// Operator and Baseline are medians, in Unit. Baseline is the baseline client's.
	Operator float64 `json:"operator"`
	Baseline float64 `json:"baseline,omitempty"`
	Unit     string  `json:"unit"`
	// Value is compared with the target: the ratio of operator to baseline client if both were
	// measured, the operator's own figure otherwise.
	Value float64 `json:"value"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	// Target is the largest allowed value; nil means that the result has no target.
	Target *float64 `json:"target,omitempty"`
}

func (r result) status() string {
	switch {
	case r.Target == nil:
		return "reported"
	case r.Value <= *r.Target:
		return "met"
	}
	return "MISSED"
}

// report has all results of the benchmark.
type report struct {
	Machine string   `json:"machine"`
	Date    string   `json:"date"`
	Turns   int      `json:"turns"`
	Results []result `json:"results"`
	// Converged and Ready are the requests until an Echo has converged, and until it is ready.
	Converged []requestCount `json:"requestsUntilConverged,omitempty"`
	Ready     []requestCount `json:"requestsUntilReady,omitempty"`
	Growth    []point        `json:"growth,omitempty"`
	Workers   []point        `json:"workers,omitempty"`
}

// point is a point of a chart.
type point struct {
	X        float64 `json:"x"`
	Operator float64 `json:"operator"`
	Baseline float64 `json:"baseline"`
}

// newRatioResult makes a result of the turns of operator and baseline client. Turn i of one belongs
// to turn i of the other.
func newRatioResult(name string, operator, baseline []time.Duration, target *float64) result {
	o, b := seconds(operator), seconds(baseline)
	var ratios []float64
	for i := range o {
		ratios = append(ratios, o[i]/b[i])
	}
	return result{Name: name, Operator: median(o), Baseline: median(b), Unit: "s", Value: median(ratios),
		Min: slices.Min(ratios), Max: slices.Max(ratios), Target: target}
}

func seconds(durations []time.Duration) (s []float64) {
	for _, d := range durations {
		s = append(s, d.Seconds())
	}
	return s
}

// newValueResult makes a result that only the operator has.
func newValueResult(name, unit string, target *float64, values ...float64) result {
	return result{Name: name, Operator: median(values), Unit: unit, Value: median(values),
		Min: slices.Min(values), Max: slices.Max(values), Target: target}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// print writes the report as Markdown tables.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n| measurement | operator | baseline client | ratio or value (min to max) | target | status |\n|---|---|---|---|---|---|\n")
	for _, res := range r.Results {
		baseline, target := "", ""
		if res.Baseline != 0 {
			baseline = fmt.Sprintf("%.3g %s", res.Baseline, res.Unit)
		}
		if res.Target != nil {
			target = fmt.Sprintf("≤ %.4g", *res.Target)
		}
		fmt.Fprintf(w, "| %s | %.4g %s | %s | %.3f (%.3f to %.3f) | %s | %s |\n",
			res.Name, res.Operator, res.Unit, baseline, res.Value, res.Min, res.Max, target, res.status())
	}
	for _, table := range []struct {
		state  string
		counts []requestCount
	}{{"converged", r.Converged}, {"ready", r.Ready}} {
		fmt.Fprintf(w, "\n| operation | reconciliations per Echo until it is %s | requests per Echo |\n|---|---|---|\n", table.state)
		for _, c := range table.counts {
			fmt.Fprintf(w, "| %s | %.2f | %s |\n", c.Operation, c.Reconciliations, c)
		}
	}
}

func (r *report) save(file string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}

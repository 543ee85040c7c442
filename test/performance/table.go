package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// line is one row of the table.
type line struct {
	Name string `json:"name"`
	// Ours and Ceiling are medians, in Unit.
	Ours    float64 `json:"ours"`
	Ceiling float64 `json:"ceiling,omitempty"`
	Unit    string  `json:"unit"`
	// Judged is what is held against the target: the ratio, where there is a ceiling.
	Judged float64 `json:"judged"`
	// Least and Most are the spread of what is judged.
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
	// Target is the most that is allowed; nil means that the line is only reported.
	Target *float64 `json:"target,omitempty"`
}

func (l line) verdict() string {
	switch {
	case l.Target == nil:
		return "reported"
	case l.Judged <= *l.Target:
		return "met"
	}
	return "MISSED"
}

// report is everything that was measured.
type report struct {
	Machine string `json:"machine"`
	Date    string `json:"date"`
	Runs    int    `json:"runs"`
	Lines   []line `json:"lines"`
	// Converged and Ready are the requests until an Echo has converged, and until it is ready.
	Converged []count `json:"requestsUntilConverged,omitempty"`
	Ready     []count `json:"requestsUntilReady,omitempty"`
	Growth    []point `json:"growth,omitempty"`
	Workers   []point `json:"workers,omitempty"`
}

// point is one of a curve.
type point struct {
	X       float64 `json:"x"`
	Ours    float64 `json:"ours"`
	Ceiling float64 `json:"ceiling"`
}

// compared makes a line of runs of both sides, taken in turns: the ratio is that of each turn.
func compared(name string, ours, ceiling []time.Duration, target *float64) line {
	a, b := seconds(ours), seconds(ceiling)
	var ratios []float64
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return line{Name: name, Ours: median(a), Ceiling: median(b), Unit: "s", Judged: median(ratios),
		Least: slices.Min(ratios), Most: slices.Max(ratios), Target: target}
}

func seconds(durations []time.Duration) (s []float64) {
	for _, d := range durations {
		s = append(s, d.Seconds())
	}
	return s
}

// single makes a line of a figure that has no ceiling.
func single(name, unit string, target *float64, values ...float64) line {
	return line{Name: name, Ours: median(values), Unit: unit, Judged: median(values),
		Least: slices.Min(values), Most: slices.Max(values), Target: target}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// print writes the table, in Markdown.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n| line | ours | ceiling | judged (least to most) | target | |\n|---|---|---|---|---|---|\n")
	for _, l := range r.Lines {
		ceiling, target := "", ""
		if l.Ceiling != 0 {
			ceiling = fmt.Sprintf("%.3g %s", l.Ceiling, l.Unit)
		}
		if l.Target != nil {
			target = fmt.Sprintf("≤ %.4g", *l.Target)
		}
		fmt.Fprintf(w, "| %s | %.4g %s | %s | %.3f (%.3f to %.3f) | %s | %s |\n",
			l.Name, l.Ours, l.Unit, ceiling, l.Judged, l.Least, l.Most, target, l.verdict())
	}
	for _, until := range []struct {
		what   string
		counts []count
	}{{"converged", r.Converged}, {"ready", r.Ready}} {
		fmt.Fprintf(w, "\n| operation | requests for each Echo until it is %s |\n|---|---|\n", until.what)
		for _, c := range until.counts {
			fmt.Fprintf(w, "| %s | %s |\n", c.Operation, c)
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

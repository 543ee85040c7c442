package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// result is one row of the report.
type result struct {
	name string
	// operator and baseline are medians, in unit. baseline is the baseline client's.
	operator, baseline float64
	unit               string
	// value is compared with the target: the ratio of operator to baseline client if both were
	// measured, the operator's own figure otherwise.
	value, min, max float64
	// target is the largest allowed value; nil means that the result has no target.
	target *float64
}

func (r result) status() string {
	switch {
	case r.target == nil:
		return "reported"
	case r.value <= *r.target:
		return "met"
	}
	return "MISSED"
}

// report has all results of the benchmark.
type report []result

func (r *report) add(results ...result) { *r = append(*r, results...) }

// newRatioResult makes a result of the turns of operator and baseline client. Turn i of one belongs
// to turn i of the other.
func newRatioResult(name string, operator, baseline []time.Duration, target *float64) result {
	o, b := seconds(operator), seconds(baseline)
	var ratios []float64
	for i := range o {
		ratios = append(ratios, o[i]/b[i])
	}
	r := newValueResult(name, "s", target, ratios...)
	r.operator, r.baseline = median(o), median(b)
	return r
}

// newValueResult makes a result that only the operator has.
func newValueResult(name, unit string, target *float64, values ...float64) result {
	return result{name: name, operator: median(values), unit: unit, value: median(values),
		min: slices.Min(values), max: slices.Max(values), target: target}
}

func seconds(durations []time.Duration) (s []float64) {
	for _, d := range durations {
		s = append(s, d.Seconds())
	}
	return s
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// print writes the report as a Markdown table.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n| measurement | operator | baseline client | ratio or value (min to max) | target | status |\n|---|---|---|---|---|---|\n")
	for _, res := range *r {
		baseline, target := "", ""
		if res.baseline != 0 {
			baseline = fmt.Sprintf("%.3g %s", res.baseline, res.unit)
		}
		if res.target != nil {
			target = fmt.Sprintf("≤ %.4g", *res.target)
		}
		fmt.Fprintf(w, "| %s | %.4g %s | %s | %.3f (%.3f to %.3f) | %s | %s |\n",
			res.name, res.operator, res.unit, baseline, res.value, res.min, res.max, target, res.status())
	}
}

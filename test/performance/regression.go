package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
)

// figure is a measurement that is the same on every machine, within its tolerance.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Tolerance is how much larger than the recorded value a measured value may be.
	Tolerance float64 `json:"tolerance"`
}

// allowed is the largest value that is not a regression.
func (f figure) allowed() float64 { return f.Value + f.Tolerance }

// regressionCheckSize is the number of Echoes of the regression check.
const regressionCheckSize = 250

// checkRegressions measures the figures, and compares them with the recorded baseline or records
// them.
func (o options) checkRegressions(ctx context.Context) (err error) {
	if o.record {
		measured, err := o.measureFigures(ctx, nil)
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(measured, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(o.recorded, append(text, '\n'), 0o644) //nolint:gosec // A file of the repository.
	}
	text, err := os.ReadFile(o.recorded)
	if err != nil {
		return err
	}
	var recorded []figure
	if err := json.Unmarshal(text, &recorded); err != nil {
		return fmt.Errorf("read %s: %w", o.recorded, err)
	}
	measured, err := o.measureFigures(ctx, recorded)
	if err != nil {
		return err
	}
	return compareFigures(recorded, measured)
}

// compareFigures prints both, and fails if a figure is larger than allowed, missing or unrecorded.
func compareFigures(recorded, measured []figure) error {
	values := map[string]float64{}
	for _, f := range measured {
		values[f.Name] = f.Value
	}
	fmt.Printf("\n| figure | recorded | allowed | measured | status |\n|---|---|---|---|---|\n")
	var errs []error
	for _, f := range recorded {
		value, ok := values[f.Name]
		delete(values, f.Name)
		status := "ok"
		switch {
		case !ok:
			status = "MISSING"
			errs = append(errs, fmt.Errorf("%s: recorded, but not measured", f.Name))
		case value > f.allowed():
			status = "REGRESSION"
			errs = append(errs, fmt.Errorf("%s = %.4g, want at most %.4g", f.Name, value, f.allowed()))
		case value < f.Value-f.Tolerance:
			status = "improved: record it with make bench-check RECORD=1"
		}
		fmt.Printf("| %s | %.4g | %.4g | %.4g | %s |\n", f.Name, f.Value, f.allowed(), value, status)
	}
	for name := range values {
		errs = append(errs, fmt.Errorf("%s: measured, but not recorded: run make bench-check RECORD=1", name))
	}
	return errors.Join(errs...)
}

// measureFigures measures what is compared with the recorded baseline, which is nil when it is recorded.
func (o options) measureFigures(ctx context.Context, recorded []figure) (figures []figure, err error) {
	e, err := startEnvironment(ctx, o.root, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	progress("Requests per Echo ...")
	counts, err := e.countRequests(ctx, requestSampleSize, settleTime, isConverged)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		// An event of an own write that arrives before the response causes one more reconciliation. So does the wait for a seat.
		tolerance := map[bool]float64{false: 0.2, true: 1}[c.writes > 0]
		figures = append(figures,
			// The operator retries a write after a conflict: rarely, and only on a busy machine.
			newFigure("writes per Echo: "+c.operation, c.writes, 0.05),
			newFigure("live reads per Echo: "+c.operation, c.reads, 0.05),
			newFigure("reconciliations per Echo: "+c.operation, c.reconciliations, tolerance))
	}
	progress("Memory and allocations ...")
	m, err := e.measureMemory(ctx, regressionCheckSize)
	if err != nil {
		return nil, err
	}
	figures = append(figures,
		newFigure("live memory per Echo, in KiB", m.heapPerEcho/kib, m.heapPerEcho/kib/10),
		newFigure("allocations per reconciliation without a change", m.mallocs, m.mallocs/20),
		newFigure("watches", m.watches, 0))
	progress("CPU time of the operator and of the baseline client ...")
	cpu, err := e.measureCPUFigures(ctx, recorded)
	return append(figures, cpu...), err
}

// newFigure rounds: further digits vary from run to run.
func newFigure(name string, value, tolerance float64) figure {
	return figure{Name: name, Value: math.Round(100*value) / 100, Tolerance: math.Round(100*tolerance) / 100}
}

// A CPU time varies by a tenth from turn to turn, and the median of few turns with it.
const (
	cpuTurns       = 3
	recheckedTurns = 12
)

// measureCPUFigures takes more turns if the median of a few exceeds what is allowed, or is to be
// recorded.
func (e *environment) measureCPUFigures(ctx context.Context, recorded []figure) (figures []figure, err error) {
	var operator, baseline []timings
	for _, turns := range []int{cpuTurns, recheckedTurns - cpuTurns} {
		o, b, err := e.takeTurns(ctx, turns, regressionCheckSize, setupConcurrency)
		if err != nil {
			return nil, err
		}
		operator, baseline = append(operator, o...), append(baseline, b...)
		created := newRatioResult("", pick(operator, create, cpu), pick(baseline, create, cpu), nil).value
		edits := newRatioResult("", pick(operator, edited, cpu), pick(baseline, edited, cpu), nil).value
		// On a busy machine, the ratio varies by a tenth. One more reconciliation is a figure of its own.
		figures = []figure{
			newFigure("CPU time relative to the baseline client: create", created, created/4),
			newFigure("CPU time relative to the baseline client: edit of the message", edits, edits*0.3),
		}
		if recorded != nil && !anyExceeds(recorded, figures) {
			break
		}
	}
	return figures, nil
}

// anyExceeds reports whether a figure is larger than allowed.
func anyExceeds(recorded, measured []figure) bool {
	return slices.ContainsFunc(measured, func(m figure) bool {
		return slices.ContainsFunc(recorded, func(r figure) bool { return r.Name == m.Name && m.Value > r.allowed() })
	})
}

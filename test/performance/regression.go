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
	progress("Starting etcd and kube-apiserver ...")
	e, err := startEnvironment(ctx, o.root, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	progress("Requests per Echo, with %d Echoes ...", regressionCheckSize)
	counts, err := e.countRequests(ctx, regressionCheckSize, settleTime, isConverged)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		figures = append(figures,
			// The operator retries a write after a conflict: rarely, and only on a busy machine.
			figure{Name: "writes per Echo: " + c.Operation, Value: c.Writes, Tolerance: 0.05},
			figure{Name: "live reads per Echo: " + c.Operation, Value: c.Reads, Tolerance: 0.05},
			// An event that arrives after more than a second causes one more.
			figure{Name: "reconciliations per Echo: " + c.Operation, Value: c.Reconciliations, Tolerance: 0.2})
	}
	progress("Memory and allocations ...")
	none, err := e.memoryWith(ctx, 0)
	if err != nil {
		return nil, err
	}
	many, err := e.memoryWith(ctx, regressionCheckSize)
	if err != nil {
		return nil, err
	}
	memory := (many.Heap - none.Heap) / regressionCheckSize / kib
	figures = append(figures,
		figure{Name: "live memory per Echo, in KiB", Value: memory, Tolerance: memory / 10},
		figure{Name: "allocations per reconciliation without a change", Value: many.Mallocs, Tolerance: many.Mallocs / 20},
		figure{Name: "watches", Value: many.Watches})
	progress("CPU time of the operator and of the baseline client ...")
	cpu, err := measureCPUFigures(recorded, func(turns int) (operator, baseline []timings, err error) {
		return options{turns: turns}.takeTurns(ctx, e, regressionCheckSize, setupConcurrency, true)
	})
	if err != nil {
		return nil, err
	}
	figures = append(figures, cpu...)
	for i := range figures { // Further digits vary from run to run.
		figures[i].Value, figures[i].Tolerance = round(figures[i].Value), round(figures[i].Tolerance)
	}
	return figures, nil
}

// A CPU time varies by a tenth from turn to turn, and the median of few turns with it.
const (
	cpuTurns       = 3
	recheckedTurns = 12
)

// measureCPUFigures takes more turns if the median of a few exceeds what is allowed, or is to be
// recorded.
func measureCPUFigures(recorded []figure, takeTurns func(turns int) (operator, baseline []timings, err error)) (figures []figure, err error) {
	var operator, baseline []timings
	for _, turns := range []int{cpuTurns, recheckedTurns} {
		o, b, err := takeTurns(turns - len(operator))
		if err != nil {
			return nil, err
		}
		operator, baseline = append(operator, o...), append(baseline, b...)
		cpu := func(operation func(timings) measurement) float64 {
			return newRatioResult("", pick(operator, operation, writerCPU), pick(baseline, operation, writerCPU), nil).Value
		}
		// One more reconciliation adds a tenth to a creation, and a quarter to an edit.
		figures = []figure{
			{Name: "CPU time relative to the baseline client: create", Value: cpu(create), Tolerance: cpu(create) / 4},
			{Name: "CPU time relative to the baseline client: edit of the message", Value: cpu(edited), Tolerance: cpu(edited) * 0.15},
		}
		if recorded != nil && !anyExceeds(recorded, figures) {
			return figures, nil
		}
	}
	return figures, nil
}

// anyExceeds reports whether a figure is larger than allowed.
func anyExceeds(recorded, measured []figure) bool {
	return slices.ContainsFunc(measured, func(m figure) bool {
		return slices.ContainsFunc(recorded, func(r figure) bool { return r.Name == m.Name && round(m.Value) > r.allowed() })
	})
}

func round(value float64) float64 { return math.Round(100*value) / 100 }

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
)

// gated is a figure that is the same on every machine, but for some noise.
type gated struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Slack is by how much it may be more.
	Slack float64 `json:"slack"`
}

// gateSize is the number of Echoes that the gate measures with.
const gateSize = 250

// gate compares what can be compared between machines with what was recorded.
func (o options) gate(ctx context.Context) (err error) {
	now, err := o.gatedFigures(ctx)
	if err != nil {
		return err
	}
	if o.record {
		text, err := json.MarshalIndent(now, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(o.recorded, append(text, '\n'), 0o644) //nolint:gosec // A file of the tree.
	}
	text, err := os.ReadFile(o.recorded)
	if err != nil {
		return err
	}
	var recorded []gated
	if err := json.Unmarshal(text, &recorded); err != nil {
		return fmt.Errorf("read %s: %w", o.recorded, err)
	}
	return compareGated(recorded, now)
}

// compareGated prints both, and fails where one is worse, or missing.
func compareGated(recorded, now []gated) error {
	values := map[string]float64{}
	for _, figure := range now {
		values[figure.Name] = figure.Value
	}
	fmt.Printf("\n| figure | recorded | allowed | now | |\n|---|---|---|---|---|\n")
	var errs []error
	for _, figure := range recorded {
		value, measured := values[figure.Name]
		delete(values, figure.Name)
		verdict := "as good"
		switch allowed := figure.Value + figure.Slack; {
		case !measured:
			verdict = "MISSING"
			errs = append(errs, fmt.Errorf("%s was recorded, and is not measured any more", figure.Name))
		case value > allowed:
			verdict = "WORSE"
			errs = append(errs, fmt.Errorf("%s is %.4g, at most %.4g is allowed", figure.Name, value, allowed))
		case value < figure.Value-figure.Slack:
			verdict = "better: record it, by make bench-gate RECORD=1"
		}
		fmt.Printf("| %s | %.4g | %.4g | %.4g | %s |\n", figure.Name, figure.Value, figure.Value+figure.Slack, value, verdict)
	}
	for name := range values {
		errs = append(errs, fmt.Errorf("%s is not recorded: make bench-gate RECORD=1", name))
	}
	return errors.Join(errs...)
}

// gatedFigures measures them.
func (o options) gatedFigures(ctx context.Context) (figures []gated, err error) {
	progress("Starting etcd and kube-apiserver ...")
	s, err := startServer(ctx, o.root, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	progress("Requests for each of %d Echoes ...", gateSize)
	counts, err := s.requests(ctx, gateSize, settling, isObserved)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		figures = append(figures,
			// A write that meets another one is made again: rarely, and only on a busy machine.
			gated{Name: "writes for an Echo: " + c.Operation, Value: c.Writes, Slack: 0.05},
			gated{Name: "live reads for an Echo: " + c.Operation, Value: c.Reads, Slack: 0.05})
	}
	progress("Memory and allocations ...")
	none, err := s.memoryAt(ctx, 0)
	if err != nil {
		return nil, err
	}
	many, err := s.memoryAt(ctx, gateSize)
	if err != nil {
		return nil, err
	}
	memory := (many.Heap - none.Heap) / gateSize / 1024
	figures = append(figures,
		gated{Name: "live memory of an Echo, in KiB", Value: memory, Slack: memory / 10},
		gated{Name: "allocations of a pass without a change", Value: many.Mallocs, Slack: many.Mallocs / 20},
		gated{Name: "watches", Value: many.Watches})
	for i := range figures { // More digits would be noise.
		figures[i].Value, figures[i].Slack = rounded(figures[i].Value), rounded(figures[i].Slack)
	}
	return figures, nil
}

func rounded(value float64) float64 { return math.Round(100*value) / 100 }

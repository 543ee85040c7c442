package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// full reports whether to run the full benchmark, or only what takes two minutes.
func (o options) full() bool { return o.n == 0 }

// sizes are the numbers of Echoes to measure with.
func (o options) sizes() []int {
	if !o.full() {
		return []int{o.n}
	}
	return []int{1000, 5000}
}

func (o options) largestSize() int { return o.sizes()[len(o.sizes())-1] }

// fullOr returns a duration of the full benchmark, or a shorter one.
func (o options) fullOr(full, short time.Duration) time.Duration {
	if o.full() {
		return full
	}
	return short
}

// measure runs the whole benchmark.
func (o options) measure(ctx context.Context, r *report) error {
	if err := o.withEnvironment(ctx, false, r, o.measureReady); err != nil {
		return err
	}
	return o.withEnvironment(ctx, true, r, o.measureRequests, o.measureConvergence, o.measureMemory, o.measureRestarts, o.measureChurn, o.measureIsolation)
}

// withEnvironment takes measurements in a new environment.
func (o options) withEnvironment(
	ctx context.Context, bare bool, r *report, measurements ...func(context.Context, *environment, *report) error,
) (err error) {
	e, err := startEnvironment(ctx, o.root, bare)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	for _, measure := range measurements {
		if err := measure(ctx, e, r); err != nil {
			return err
		}
	}
	return nil
}

// requestSampleSize is the number of Echoes to count requests for. Every Echo causes the same
// requests, so a small sample is enough.
const requestSampleSize = 50

// measureReady counts requests until pods are ready, and in steady state.
func (o options) measureReady(ctx context.Context, e *environment, r *report) error {
	steadyState := o.fullOr(10*time.Minute, 3*time.Second)
	progress("Requests per Echo until it is ready, and for %s of steady state ...", steadyState)
	counts, err := e.countRequests(ctx, requestSampleSize, steadyState, isReady)
	if err != nil {
		return err
	}
	targets := map[string]*float64{operationRestart: new(0.0), operationNone: new(0.0), operationDelete: new(0.0)}
	for _, c := range counts {
		r.add(newValueResult("writes per Echo with pods: "+c.operation, "", targets[c.operation], c.writes))
	}
	return nil
}

// measureRequests counts requests until an Echo has converged.
func (o options) measureRequests(ctx context.Context, e *environment, r *report) error {
	progress("Requests per Echo until it has converged ...")
	counts, err := e.countRequests(ctx, requestSampleSize, settleTime, isConverged)
	if err != nil {
		return err
	}
	targets := map[string]float64{operationCreate: 4, operationEdit: 2, operationScale: 2}
	for _, c := range counts {
		r.add(newValueResult("writes per Echo: "+c.operation, "", new(targets[c.operation]), c.writes),
			newValueResult("  live reads", "", new(0.0), c.reads),
			newValueResult("  reconciliations", "", new(1.2), c.reconciliations))
	}
	return nil
}

// measureConvergence measures operator and baseline client for each size.
func (o options) measureConvergence(ctx context.Context, e *environment, r *report) error {
	concurrency := setupConcurrency
	if o.full() {
		var err error
		if concurrency, err = e.bestConcurrency(ctx, 500); err != nil {
			return err
		}
	}
	for _, n := range o.sizes() {
		operator, baseline, err := e.takeTurns(ctx, o.turns, n, concurrency)
		if err != nil {
			return err
		}
		for _, operation := range []struct {
			name string
			pick func(timings) measurement
		}{{"create", create}, {"edit", edited}} {
			of := operation.pick
			r.add(newRatioResult(fmt.Sprintf("%s %d Echoes", operation.name, n), pick(operator, of, wall), pick(baseline, of, wall), new(1.1)),
				newRatioResult("  CPU time for that", pick(operator, of, cpu), pick(baseline, of, cpu), new(1.4)))
		}
	}
	return nil
}

// measureMemory measures the memory of the operator.
func (o options) measureMemory(ctx context.Context, e *environment, r *report) error {
	n := o.largestSize()
	progress("Memory with %d Echoes ...", n)
	m, err := e.measureMemory(ctx, n)
	if err != nil {
		return err
	}
	r.add(newValueResult(fmt.Sprintf("peak memory with %d Echoes", n), "MiB", new(125.0), m.peak/mib),
		newValueResult("live memory per Echo", "KiB", new(12.0), m.heapPerEcho/kib),
		newValueResult("allocations per reconciliation without a change", "", nil, m.mallocs),
		newValueResult("watches", "", nil, m.watches))
	return nil
}

// measureRestarts measures starts of the operator.
func (o options) measureRestarts(ctx context.Context, e *environment, r *report) error {
	n := o.largestSize()
	progress("Restarts with %d Echoes ...", n)
	s, err := e.restart(ctx, n, o.turns)
	if err != nil {
		return err
	}
	r.add(newValueResult(fmt.Sprintf("from the start to the first reconciliation, with %d Echoes", n), "s", nil, seconds(s.firstReconciliation)...),
		newValueResult(fmt.Sprintf("CPU time of the operator until it has reconciled %d Echoes after its start", n), "s", new(1.5), seconds(s.cpu)...),
		newValueResult(fmt.Sprintf("peak memory of a start with %d Echoes", n), "MiB", new(110.0), s.peak...))
	return nil
}

// changeRate is the number of changes a second.
const changeRate = 50

// measureChurn measures the latency of changes at a constant rate.
func (o options) measureChurn(ctx context.Context, e *environment, r *report) error {
	n, duration := min(1000, o.largestSize()), o.fullOr(5*time.Minute, 2*time.Second)
	progress("%d changes a second for %s, with %d Echoes ...", changeRate, duration, n)
	latencies, err := e.churn(ctx, n, duration)
	if err != nil {
		return err
	}
	r.add(newValueResult(fmt.Sprintf("%d changes a second: p99 until converged", changeRate), "s", new(0.5), latencies[len(latencies)*99/100].Seconds()))
	return nil
}

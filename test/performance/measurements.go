package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// measureOnBareAPIServer measures how fast the operator writes, on an API server without other
// writers.
func (o options) measureOnBareAPIServer(ctx context.Context, r *report) (err error) {
	progress("Starting etcd and kube-apiserver ...")
	e, err := startEnvironment(ctx, o.root, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	for _, measure := range []func(context.Context, *environment, *report) error{o.measureWrites, o.measureRestarts, o.measureChurn, o.measureConvergence} {
		if err := measure(ctx, e, r); err != nil {
			return err
		}
	}
	return nil
}

// measureConvergence measures operator and baseline client for each size, and then the operator
// for each number of workers.
func (o options) measureConvergence(ctx context.Context, e *environment, r *report) error {
	concurrency := setupConcurrency
	if o.full() {
		var err error
		if concurrency, err = e.bestConcurrency(ctx, 500); err != nil {
			return err
		}
	}
	for _, n := range o.sizes() {
		target, cpuTarget := new(1.10), new(1.4)
		if n <= 100 {
			target, cpuTarget = nil, nil // So few Echoes take too little time for a stable ratio.
		}
		edit := n == 1000 || !o.full()
		operator, baseline, err := o.takeTurns(ctx, e, n, concurrency, edit)
		if err != nil {
			return err
		}
		converged := newRatioResult(fmt.Sprintf("converge %d Echoes", n), pick(operator, create, wall), pick(baseline, create, wall), target)
		r.Results = append(append(r.Results, converged), cpuResults(cpuTarget, operator, baseline, create)...)
		if edit {
			r.Results = append(r.Results, newRatioResult(fmt.Sprintf("edit the message of %d Echoes", n), pick(operator, edited, wall), pick(baseline, edited, wall), target))
			r.Results = append(r.Results, cpuResults(cpuTarget, operator, baseline, edited)...)
			if err := o.measureWriteCost(ctx, e, r, n, concurrency, operator); err != nil {
				return err
			}
		}
		r.Growth = append(r.Growth, point{X: float64(n), Operator: 1000 * converged.Operator / float64(n), Baseline: 1000 * converged.Baseline / float64(n)})
	}
	if !o.full() {
		return nil
	}
	few, many := r.Growth[1], r.Growth[len(r.Growth)-1]
	operator, baseline := many.Operator/few.Operator, many.Baseline/few.Baseline
	growth := newValueResult(fmt.Sprintf("time per Echo with %.0f Echoes ÷ with %.0f", many.X, few.X), "", new(1.1), operator/baseline)
	growth.Operator, growth.Baseline = operator, baseline
	r.Results = append(r.Results, growth)
	return o.measureWorkers(ctx, e, r, concurrency)
}

// takeTurns measures operator and baseline client by turns. The first of each turn alternates.
func (o options) takeTurns(ctx context.Context, e *environment, n, concurrency int, edit bool) (operator, baseline []timings, err error) {
	for turn := range o.turns {
		var op, base timings
		measurements := []func() error{
			func() (err error) { base, err = e.measureBaseline(ctx, n, concurrency, edit); return err },
			func() (err error) { op, err = e.measureOperator(ctx, n, 0, edit); return err },
		}
		if turn%2 == 1 {
			slices.Reverse(measurements)
		}
		for _, measure := range measurements {
			if err := measure(); err != nil {
				return nil, nil, fmt.Errorf("%d Echoes, turn %d: %w", n, turn+1, err)
			}
		}
		progress("  %d Echoes, turn %d of %d: ratio to the baseline client %.2f", n, turn+1, o.turns, op.create.wall.Seconds()/base.create.wall.Seconds())
		operator, baseline = append(operator, op), append(baseline, base)
	}
	return operator, baseline, nil
}

// Writes of the operator for a new Echo and for an edit. measureWrites counts them.
const (
	writesPerCreate = 4
	writesPerEdit   = 2
)

// measureWriteCost compares the API server's CPU time for a write of the operator with that for a
// ConfigMap, which is the cheapest write.
func (o options) measureWriteCost(ctx context.Context, e *environment, r *report, n, concurrency int, operator []timings) error {
	var configMaps []timings
	for range o.turns {
		t, err := e.measureConfigMaps(ctx, n, concurrency)
		if err != nil {
			return err
		}
		configMaps = append(configMaps, t)
	}
	perWrite := func(times []time.Duration, writes int) (per []time.Duration) {
		for _, t := range times {
			per = append(per, t/time.Duration(writes))
		}
		return per
	}
	r.Results = append(r.Results,
		newRatioResult("CPU time of the API server per write for a new Echo ÷ POST of a ConfigMap",
			perWrite(pick(operator, create, apiServerCPU), n*writesPerCreate), perWrite(pick(configMaps, create, apiServerCPU), n), nil),
		newRatioResult("  for an edit ÷ PUT of a ConfigMap",
			perWrite(pick(operator, edited, apiServerCPU), n*writesPerEdit), perWrite(pick(configMaps, edited, apiServerCPU), n), nil))
	return nil
}

// cpuResults compare the CPU times of operator and baseline client.
func cpuResults(target *float64, operator, baseline []timings, operation func(timings) measurement) []result {
	return []result{
		newRatioResult("  CPU time for that, of the writer", pick(operator, operation, writerCPU), pick(baseline, operation, writerCPU), target),
		newRatioResult("  of the API server", pick(operator, operation, apiServerCPU), pick(baseline, operation, apiServerCPU), nil),
		newRatioResult("  of API server, etcd and writer", pick(operator, operation, allCPU), pick(baseline, operation, allCPU), nil),
	}
}

func create(t timings) measurement { return t.create }
func edited(t timings) measurement { return t.edit }

func wall(m measurement) time.Duration         { return m.wall }
func writerCPU(m measurement) time.Duration    { return m.cpu.writer }
func apiServerCPU(m measurement) time.Duration { return m.cpu.apiServer }
func allCPU(m measurement) time.Duration       { return m.cpu.all }

func pick(all []timings, operation func(timings) measurement, which func(measurement) time.Duration) (durations []time.Duration) {
	for _, t := range all {
		durations = append(durations, which(operation(t)))
	}
	return durations
}

// measureWorkers measures the operator with several numbers of workers. Each turn begins with the
// baseline client.
func (o options) measureWorkers(ctx context.Context, e *environment, r *report, concurrency int) error {
	numbers := []int{1, 2, 4, 8, 16, 32, 64}
	operator, baseline := map[int][]time.Duration{}, []time.Duration{}
	for turn := range min(o.turns, 3) {
		progress("%v workers, turn %d ...", numbers, turn+1)
		t, err := e.measureBaseline(ctx, 500, concurrency, false)
		if err != nil {
			return err
		}
		baseline = append(baseline, t.create.wall)
		for _, workers := range numbers {
			t, err := e.measureOperator(ctx, 500, workers, false)
			if err != nil {
				return fmt.Errorf("%d workers: %w", workers, err)
			}
			operator[workers] = append(operator[workers], t.create.wall)
		}
	}
	for _, workers := range numbers {
		ratio := newRatioResult("", operator[workers], baseline, nil).Value
		r.Workers = append(r.Workers, point{X: float64(workers), Operator: ratio, Baseline: 1})
	}
	return nil
}

// measureMemory measures the memory of the operator and of the API server. It starts a new API
// server, because one that has served many objects keeps their watch events in memory.
func (o options) measureMemory(ctx context.Context, r *report) (err error) {
	e, err := startEnvironment(ctx, o.root, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	n := o.largestSize()
	progress("Memory of an operator without Echoes, and with %d ...", n)
	none, err := e.memoryWith(ctx, 0)
	if err != nil {
		return err
	}
	many, err := e.memoryWith(ctx, n)
	if err != nil {
		return err
	}
	r.Results = append(r.Results,
		newValueResult(fmt.Sprintf("peak memory with %d Echoes", n), "MiB", new(125.0), many.Peak/mib),
		newValueResult("live memory per Echo", "KiB", new(12.0), (many.Heap-none.Heap)/float64(n)/kib),
		newValueResult("allocations per reconciliation without a change", "", nil, many.Mallocs),
		newValueResult(fmt.Sprintf("watches that %d Echoes add", n), "", new(0.0), many.Watches-none.Watches),
		newValueResult("live memory of the API server per Echo", "KiB", nil, (many.APIServer-none.APIServer)/float64(n)/kib))
	progress("The same beside %d objects of each kind that no Echo controls ...", n)
	if err := e.createUncontrolled(ctx, n); err != nil {
		return err
	}
	beside, err := e.memoryWith(ctx, n)
	r.Results = append(r.Results, newValueResult("live memory beside as many uncontrolled objects ÷ without", "", new(1.05), beside.Heap/many.Heap))
	return err
}

// measureWrites counts requests until an Echo has converged.
func (o options) measureWrites(ctx context.Context, e *environment, r *report) error {
	n := o.requestSampleSize()
	progress("Requests per Echo until it has converged, with %d Echoes ...", n)
	counts, err := e.countRequests(ctx, n, 0, isConverged)
	if err != nil {
		return err
	}
	r.Converged = counts
	targets := map[string]float64{operationCreate: writesPerCreate, operationEdit: writesPerEdit, operationScale: writesPerEdit}
	for _, c := range counts {
		if target, ok := targets[c.Operation]; ok {
			r.Results = append(r.Results, newValueResult("writes per Echo: "+c.Operation, "", &target, c.Writes),
				newValueResult("  reconciliations", "", new(1.2), c.Reconciliations))
		}
	}
	return nil
}

// measureRestarts measures how long the operator takes to start, and how long a new Echo takes
// to converge meanwhile.
func (o options) measureRestarts(ctx context.Context, e *environment, r *report) error {
	n := o.largestSize()
	progress("Restarts with %d Echoes, with two new Echoes after each ...", n)
	turns := o.turns
	if !o.full() {
		turns = 1
	}
	t, err := e.restart(ctx, n, turns)
	if err != nil {
		return err
	}
	r.Results = append(r.Results,
		newRatioResult(fmt.Sprintf("new Echo latency while %d are reconciled after a restart ÷ in steady state", n), t.during, t.steady, new(2.0)),
		newRatioResult("  when the workers start ÷ in steady state", t.workersStart, t.steady, nil),
		newValueResult(fmt.Sprintf("from the start to the first reconciliation, with %d Echoes", n), "s", nil, seconds(t.started)...),
		newValueResult(fmt.Sprintf("CPU time of the operator until it has reconciled %d Echoes after its start", n), "s", new(1.5), seconds(t.cpu)...),
		newValueResult(fmt.Sprintf("peak memory of a start with %d Echoes", n), "MiB", new(110.0), t.peak...))
	return nil
}

// measureChurn measures the latency of changes at a constant rate.
func (o options) measureChurn(ctx context.Context, e *environment, r *report) error {
	n := min(1000, o.largestSize())
	targets := map[int]*float64{50: new(0.5)}
	for _, rate := range []int{50, 100} { // The API server cannot keep up with 100 on two cores.
		progress("%d changes a second for %s, with %d Echoes ...", rate, o.churnDuration(), n)
		c, err := e.churn(ctx, n, rate, o.churnDuration())
		if err != nil {
			return err
		}
		r.Results = append(r.Results,
			newValueResult(fmt.Sprintf("%d changes a second: p99 until converged", rate), "s", targets[rate], c.converged.Seconds()),
			newValueResult("  p99 of the wait in the queue, upper bound", "s", targets[rate], c.queued.Seconds()))
	}
	return nil
}

// measureWithControllers counts requests until pods are ready.
func (o options) measureWithControllers(ctx context.Context, r *report) (err error) {
	progress("Starting etcd, kube-apiserver and kube-controller-manager ...")
	e, err := startEnvironment(ctx, o.root, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.stop(context.WithoutCancel(ctx))) }()
	n := o.requestSampleSize()
	progress("Requests per Echo until it is ready, with %d Echoes, and for %s of steady state ...", n, o.steadyStateDuration())
	before, err := e.storageSize(ctx)
	if err != nil {
		return err
	}
	if r.Ready, err = e.countRequests(ctx, n, o.steadyStateDuration(), isReady); err != nil {
		return err
	}
	after, err := e.storageSize(ctx)
	if err != nil {
		return err
	}
	r.Results = append(r.Results, newValueResult("etcd file size per Echo created, changed twice and deleted", "KiB", nil, (after-before)/float64(n)/kib))
	var reads float64
	for _, c := range r.Ready {
		var target *float64
		switch c.Operation {
		case operationRestart, operationNone, operationDelete:
			target = new(0.0)
		}
		r.Results = append(r.Results, newValueResult("writes per Echo with pods: "+c.Operation, "", target, c.Writes))
		reads += c.Reads
	}
	r.Results = append(r.Results, newValueResult("live reads per Echo, all operations", "", new(0.0), reads))
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// withoutControllers measures how quickly the operator writes, on an API server where nobody
// else does: an Echo has converged when its children are there, and its status speaks of them.
func (o options) withoutControllers(ctx context.Context, r *report) (err error) {
	progress("Starting etcd and kube-apiserver ...")
	s, err := startServer(ctx, o.root, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	for _, measure := range []func(context.Context, *server, *report) error{o.writes, o.restart, o.churn, o.pairs} {
		if err := measure(ctx, s, r); err != nil {
			return err
		}
	}
	return nil
}

// pairs measures both sides in turns, for each size, and then for each number of workers.
func (o options) pairs(ctx context.Context, s *server, r *report) error {
	best := writers
	if o.full() {
		var err error
		if best, err = s.bestConcurrency(ctx, 500); err != nil {
			return err
		}
	}
	for _, n := range o.sizes() {
		target := new(1.10)
		if n <= 100 {
			target = nil // Too short to be fair.
		}
		edited := n == 1000 || !o.full()
		ours, ceiling, err := o.turns(ctx, s, n, best, edited)
		if err != nil {
			return err
		}
		converged := compared(fmt.Sprintf("converge %d Echoes", n), pick(ours, create), pick(ceiling, create), target)
		r.Lines = append(r.Lines, converged, compared("  processor time for that, of API server, etcd and writer", pick(ours, createCPU), pick(ceiling, createCPU), nil))
		if edited {
			r.Lines = append(r.Lines, compared(fmt.Sprintf("edit the message of %d Echoes", n), pick(ours, edit), pick(ceiling, edit), target))
		}
		r.Growth = append(r.Growth, point{X: float64(n), Ours: 1000 * converged.Ours / float64(n), Ceiling: 1000 * converged.Ceiling / float64(n)})
	}
	if !o.full() {
		return nil
	}
	few, many := r.Growth[1], r.Growth[len(r.Growth)-1]
	grown := single(fmt.Sprintf("time for an Echo at %.0f, of that at %.0f", many.X, few.X), "", new(1.2), many.Ours/few.Ours)
	grown.Ceiling = many.Ceiling / few.Ceiling
	r.Lines = append(r.Lines, grown)
	return o.workers(ctx, s, r, best)
}

// turns has both sides write for n Echoes, one after the other: which begins, changes with each
// turn.
func (o options) turns(ctx context.Context, s *server, n, best int, edited bool) (ours, ceiling []times, err error) {
	for turn := range o.runs {
		var c, t times
		sides := []func() error{
			func() (err error) { c, err = s.ceilingTimes(ctx, n, best, edited); return err },
			func() (err error) { t, err = s.operatorTimes(ctx, n, 0, edited); return err },
		}
		if turn%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return nil, nil, fmt.Errorf("%d Echoes, turn %d: %w", n, turn+1, err)
			}
		}
		progress("  %d Echoes, turn %d of %d: %.2f of the plain client's time", n, turn+1, o.runs, t.create.Seconds()/c.create.Seconds())
		ours, ceiling = append(ours, t), append(ceiling, c)
	}
	return ours, ceiling, nil
}

func create(t times) time.Duration    { return t.create }
func edit(t times) time.Duration      { return t.edit }
func createCPU(t times) time.Duration { return t.createCPU }

func pick(all []times, which func(times) time.Duration) (durations []time.Duration) {
	for _, t := range all {
		durations = append(durations, which(t))
	}
	return durations
}

// workers measures what the number of passes at a time brings: in each turn, the plain client
// and then the operator with every number.
func (o options) workers(ctx context.Context, s *server, r *report, best int) error {
	numbers := []int{1, 2, 4, 8, 16, 32, 64}
	ours, ceiling := map[int][]time.Duration{}, []time.Duration{}
	for turn := range min(o.runs, 3) {
		progress("%v workers, turn %d ...", numbers, turn+1)
		c, err := s.ceilingTimes(ctx, 500, best, false)
		if err != nil {
			return err
		}
		ceiling = append(ceiling, c.create)
		for _, workers := range numbers {
			t, err := s.operatorTimes(ctx, 500, workers, false)
			if err != nil {
				return fmt.Errorf("%d workers: %w", workers, err)
			}
			ours[workers] = append(ours[workers], t.create)
		}
	}
	for _, workers := range numbers {
		ratio := compared("", ours[workers], ceiling, nil).Judged
		r.Workers = append(r.Workers, point{X: float64(workers), Ours: ratio, Ceiling: 1})
	}
	return nil
}

// memory measures what the operator takes, and the API server: a new one, as one that has had
// many objects keeps what it has to tell those who watch.
func (o options) memory(ctx context.Context, r *report) (err error) {
	s, err := startServer(ctx, o.root, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	n := o.largest()
	progress("Memory of an operator with no Echo, and with %d ...", n)
	none, err := s.memoryAt(ctx, 0)
	if err != nil {
		return err
	}
	many, err := s.memoryAt(ctx, n)
	if err != nil {
		return err
	}
	r.Lines = append(r.Lines,
		single(fmt.Sprintf("peak memory with %d Echoes", n), "MiB", new(150.0), many.Peak/mib),
		single("live memory of an Echo", "KiB", new(12.0), (many.Heap-none.Heap)/float64(n)/kib),
		single("allocations of a pass without a change", "", nil, many.Mallocs),
		single(fmt.Sprintf("watches that %d Echoes add", n), "", new(0.0), many.Watches-none.Watches),
		single("live memory of the API server for an Echo", "KiB", nil, (many.APIServer-none.APIServer)/float64(n)/kib))
	progress("The same beside %d foreign Deployments and Services ...", n)
	if err := s.addForeign(ctx, n); err != nil {
		return err
	}
	beside, err := s.memoryAt(ctx, n)
	r.Lines = append(r.Lines, single("live memory beside as many foreign objects, of that without", "", new(1.05), beside.Heap/many.Heap))
	return err
}

// writes counts requests until an Echo has converged.
func (o options) writes(ctx context.Context, s *server, r *report) error {
	n := o.counted()
	progress("Requests for each of %d Echoes until it has converged ...", n)
	counts, err := s.requests(ctx, n, 0, isObserved)
	if err != nil {
		return err
	}
	r.Converged = counts
	targets := map[string]float64{created: 4, edited: 3, scaled: 3}
	for _, c := range counts {
		if target, is := targets[c.Operation]; is {
			r.Lines = append(r.Lines, single("writes for an Echo: "+c.Operation, "", &target, c.Writes))
		}
	}
	return nil
}

// restart measures how long the operator takes to start, and what that delays.
func (o options) restart(ctx context.Context, s *server, r *report) error {
	n := o.largest()
	progress("Restarts with %d Echoes, and two more Echoes at that moment ...", n)
	turns := o.runs
	if !o.full() {
		turns = 1
	}
	t, err := s.restartTimes(ctx, n, turns)
	if err != nil {
		return err
	}
	r.Lines = append(r.Lines,
		compared(fmt.Sprintf("one new Echo while %d are looked at after a restart (ceiling: when all is quiet)", n), t.busy, t.idle, new(2.0)),
		compared("  when it is about to begin with that", t.first, t.idle, nil),
		single(fmt.Sprintf("from the start to the first pass, with %d Echoes", n), "s", nil, seconds(t.started)...),
		single(fmt.Sprintf("peak memory of a start with %d Echoes", n), "MiB", new(150.0), t.peak...))
	return nil
}

// churn measures what happens where Echoes change all the time.
func (o options) churn(ctx context.Context, s *server, r *report) error {
	n := min(1000, o.largest())
	for _, pace := range []int{50, 100} { // As two cores have no API server that takes 100, half of it before.
		progress("%d changes a second for %s, of %d Echoes ...", pace, o.churning(), n)
		c, err := s.churnFor(ctx, n, pace, o.churning())
		if err != nil {
			return err
		}
		r.Lines = append(r.Lines,
			single(fmt.Sprintf("%d changes a second: 99 of 100 converged within", pace), "s", new(1.0), c.converged.Seconds()),
			single("  99 of 100 Echoes waited in the queue at most", "s", new(1.0), c.queued.Seconds()))
	}
	return nil
}

// withControllers counts requests where pods become ready.
func (o options) withControllers(ctx context.Context, r *report) (err error) {
	progress("Starting etcd, kube-apiserver and kube-controller-manager ...")
	s, err := startServer(ctx, o.root, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	n := o.counted()
	progress("Requests for each of %d Echoes until it is ready; %s of it quiet ...", n, o.quiet())
	before, err := s.storage(ctx)
	if err != nil {
		return err
	}
	if r.Ready, err = s.requests(ctx, n, o.quiet(), isReady); err != nil {
		return err
	}
	after, err := s.storage(ctx)
	if err != nil {
		return err
	}
	r.Lines = append(r.Lines, single("etcd's file for an Echo that came, changed twice, and went", "KiB", nil, (after-before)/float64(n)/kib))
	var reads float64
	for _, c := range r.Ready {
		var target *float64
		switch c.Operation {
		case restarted, quietly, wentAway:
			target = new(0.0)
		}
		r.Lines = append(r.Lines, single("writes for an Echo with pods: "+c.Operation, "", target, c.Writes))
		reads += c.Reads
	}
	r.Lines = append(r.Lines, single("live reads for an Echo, all in all", "", new(0.0), reads))
	return nil
}

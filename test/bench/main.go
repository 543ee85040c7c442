// Command bench measures the operator against the limit of its API server: what a plain client
// needs, which writes the same objects and knows beforehand what they are.
//
// The API server is a real one. Times are those of its audit log, from the first write of one
// side to the end of its last; both sides take turns, and every figure is the median of several
// turns, beside its spread. A machine's seconds mean little; the ratio is what counts.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

type options struct {
	root, report, curves string
	// n limits the number of Echoes; 0 means the full form.
	n, runs int
	// recorded is the file of the gate; record writes it anew.
	recorded string
	record   bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "../..", "the project's `directory`")
	flags.StringVar(&o.report, "report", "", "the `file` that takes the report, as JSON")
	flags.StringVar(&o.curves, "curves", "", "the `directory` that takes the curves, as SVG")
	flags.IntVar(&o.n, "n", 0, "measure with this `number` of Echoes only; the full form takes 100 to 5,000")
	flags.IntVar(&o.runs, "runs", 5, "the `number` of turns of each side, 1 or more")
	flags.StringVar(&o.recorded, "gate", "", "only compare the figures that do not depend on the machine with those in this `file`, and fail if one is worse")
	flags.BoolVar(&o.record, "record", false, "write the file of -gate anew")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: only flags are allowed", flags.Arg(0))
	case o.runs < 1:
		return o, fmt.Errorf("-runs is %d: it must be 1 or more", o.runs)
	case o.n < 0:
		return o, fmt.Errorf("-n is %d: it must be 1 or more, or 0 for the full form", o.n)
	case o.record && o.recorded == "":
		return o, errors.New("-record needs -gate, which names the file")
	}
	return o, nil
}

// full tells whether everything is measured, or only what fits into two minutes.
func (o options) full() bool { return o.n == 0 }

// quiet is how long converged Echoes are watched.
func (o options) quiet() time.Duration {
	if o.full() {
		return 10 * time.Minute
	}
	return 10 * time.Second
}

// churning is how long Echoes are changed all the time.
func (o options) churning() time.Duration {
	if o.full() {
		return 5 * time.Minute
	}
	return 10 * time.Second
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if o.recorded != "" {
		return o.gate(ctx)
	}
	r := &report{Machine: fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
		Date: time.Now().UTC().Format(time.DateOnly), Runs: o.runs}
	if err := errors.Join(o.withoutControllers(ctx, r), o.withControllers(ctx, r)); err != nil {
		return err
	}
	r.print(os.Stdout)
	if o.curves != "" {
		if err := r.draw(o.curves); err != nil {
			return err
		}
	}
	if o.report == "" {
		return nil
	}
	return r.save(o.report)
}

// sizes are the numbers of Echoes that are measured.
func (o options) sizes() []int {
	if !o.full() {
		return []int{o.n}
	}
	return []int{100, 500, 1000, 5000}
}

// largest is the largest of them.
func (o options) largest() int { return o.sizes()[len(o.sizes())-1] }

// withoutControllers measures how quickly the operator writes, on an API server where nobody
// else does: an Echo has converged when its children are there, and its status speaks of them.
func (o options) withoutControllers(ctx context.Context, r *report) (err error) {
	progress("Starting etcd and kube-apiserver ...")
	s, err := startServer(ctx, o.root, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx))) }()
	progress("How many writers at a time is the plain client quickest with?")
	best, err := s.bestConcurrency(ctx, min(500, o.largest()))
	if err != nil {
		return err
	}
	if err := o.pairs(ctx, s, r, best); err != nil {
		return err
	}
	if o.full() {
		if err := o.workers(ctx, s, r, best); err != nil {
			return err
		}
	}
	for _, measure := range []func(context.Context, *server, *report) error{o.writes, o.restart, o.churn, o.memory} {
		if err := measure(ctx, s, r); err != nil {
			return err
		}
	}
	return nil
}

// pairs measures both sides in turns, for each size.
func (o options) pairs(ctx context.Context, s *server, r *report, best int) error {
	perEcho := map[int]float64{}
	for _, n := range o.sizes() {
		var ours, ceiling struct{ create, edit []time.Duration }
		for turn := range o.runs {
			c, err := s.ceilingTimes(ctx, n, best)
			if err != nil {
				return fmt.Errorf("the plain client: %w", err)
			}
			t, err := s.operatorTimes(ctx, n, 0)
			if err != nil {
				return fmt.Errorf("the operator: %w", err)
			}
			progress("  %d Echoes, turn %d of %d: create %.2f, edit %.2f of the plain client's time", n, turn+1, o.runs,
				t.create.Seconds()/c.create.Seconds(), t.edit.Seconds()/c.edit.Seconds())
			ours.create, ours.edit = append(ours.create, t.create), append(ours.edit, t.edit)
			ceiling.create, ceiling.edit = append(ceiling.create, c.create), append(ceiling.edit, c.edit)
		}
		target := new(1.10)
		if n <= 100 {
			target = nil // Too short to be fair.
		}
		create := compared(fmt.Sprintf("converge %d Echoes", n), ours.create, ceiling.create, target)
		edit := compared(fmt.Sprintf("edit the message of %d Echoes", n), ours.edit, ceiling.edit, target)
		r.Lines = append(r.Lines, create, edit)
		r.Growth = append(r.Growth, point{X: float64(n), Ours: 1000 * create.Ours / float64(n), Ceiling: 1000 * create.Ceiling / float64(n)})
		perEcho[n] = create.Ours / float64(n)
	}
	if perEcho[500] > 0 && perEcho[5000] > 0 {
		r.Lines = append(r.Lines, single("time for an Echo at 5,000, of that at 500", "", new(1.2), perEcho[5000]/perEcho[500]))
	}
	return nil
}

// workers measures what the number of passes at a time brings.
func (o options) workers(ctx context.Context, s *server, r *report, best int) error {
	const n = 1000
	for _, workers := range []int{1, 2, 4, 8, 16, 32, 64} {
		var ours, ceiling []time.Duration
		for range min(o.runs, 3) {
			c, err := s.ceilingTimes(ctx, n, best)
			if err != nil {
				return err
			}
			t, err := s.operatorTimes(ctx, n, workers)
			if err != nil {
				return err
			}
			ours, ceiling = append(ours, t.create), append(ceiling, c.create)
		}
		l := compared("", ours, ceiling, nil)
		progress("  %d workers: %.2f of the plain client's time", workers, l.Judged)
		r.Workers = append(r.Workers, point{X: float64(workers), Ours: l.Judged, Ceiling: 1})
	}
	return nil
}

// memory measures what the operator takes.
func (o options) memory(ctx context.Context, s *server, r *report) error {
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
	const mib, kib = 1 << 20, 1 << 10
	r.Lines = append(r.Lines,
		single(fmt.Sprintf("peak memory with %d Echoes", n), "MiB", new(150.0), many.Peak/mib),
		single("live memory of an Echo", "KiB", new(12.0), (many.Heap-none.Heap)/float64(n)/kib),
		single("allocations of a pass without a change", "", nil, many.Mallocs),
		single(fmt.Sprintf("watches that %d Echoes add", n), "", new(0.0), many.Watches-none.Watches))
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
	n := min(100, o.largest())
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
	progress("Restarts with %d Echoes, and one more Echo at that moment ...", n)
	t, err := s.restartTimes(ctx, n, o.runs)
	if err != nil {
		return err
	}
	r.Lines = append(r.Lines,
		compared(fmt.Sprintf("one new Echo while %d are looked at after a restart (ceiling: when all is quiet)", n), t.busy, t.idle, new(2.0)),
		single(fmt.Sprintf("from the start to the first pass, with %d Echoes", n), "s", nil, seconds(t.started)...))
	return nil
}

// churn measures what happens where Echoes change all the time.
func (o options) churn(ctx context.Context, s *server, r *report) error {
	n := min(1000, o.largest())
	progress("%d changes a second for %s, of %d Echoes ...", changesASecond, o.churning(), n)
	c, err := s.churnFor(ctx, n, o.churning())
	if err != nil {
		return err
	}
	r.Lines = append(r.Lines,
		single("changes in a second", "", nil, c.rate),
		single("99 of 100 changes converged within", "s", new(1.0), c.converged.Seconds()),
		single("99 of 100 Echoes waited in the queue at most", "s", new(1.0), c.queued.Seconds()))
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
	n := min(100, o.largest())
	progress("Requests for each of %d Echoes until it is ready; %s of it quiet ...", n, o.quiet())
	if r.Ready, err = s.requests(ctx, n, o.quiet(), isReady); err != nil {
		return err
	}
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

// progress says what is being done, and when.
func progress(format string, args ...any) {
	fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// draw draws the curves into a directory.
func (r *report) draw(directory string) error {
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	if len(r.Growth) > 1 {
		if err := curve(filepath.Join(directory, "growth.svg"), "Time to converge", "Echoes", "ms for each", r.Growth); err != nil {
			return err
		}
	}
	if len(r.Workers) > 1 {
		return curve(filepath.Join(directory, "workers.svg"), "Passes at a time", "workers", "of the plain client's time", r.Workers)
	}
	return nil
}

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
	"syscall"
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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
	return 3 * time.Second
}

// churning is how long Echoes are changed all the time.
func (o options) churning() time.Duration {
	if o.full() {
		return 5 * time.Minute
	}
	return 2 * time.Second
}

// counted is for how many Echoes requests are counted: each asks for as many as any other.
func (o options) counted() int {
	if o.full() {
		return 100
	}
	return min(10, o.n)
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
	err = errors.Join(o.withControllers(ctx, r), o.withoutControllers(ctx, r))
	if o.full() { // The gate measures memory in half a minute.
		err = errors.Join(err, o.memory(ctx, r))
	}
	r.print(os.Stdout) // What was measured before an error, too.
	if o.curves != "" {
		err = errors.Join(err, r.draw(o.curves))
	}
	if o.report != "" {
		err = errors.Join(err, r.save(o.report))
	}
	return err
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

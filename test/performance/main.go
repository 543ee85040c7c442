// Command performance measures the operator against a baseline client: a client without watches
// that writes the very objects that the operator writes.
//
// Both run against a real etcd and kube-apiserver. Wall times come from the audit log of the API
// server: from the first write of a client to the end of its last write. The operator and the
// baseline client take turns, and the report shows the median, minimum and maximum of all turns.
// The ratio of both is comparable between machines; seconds are not.
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
	root, report, charts string
	// n is the number of Echoes; 0 selects the full benchmark.
	n, turns int
	// recorded is the file with the recorded baseline of the regression check.
	recorded string
	// record writes the recorded baseline instead of comparing with it.
	record bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "performance:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string) (o options, err error) {
	flags := flag.NewFlagSet("performance", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "../..", "root `directory` of the repository")
	flags.StringVar(&o.report, "report", "", "`file` to write the report to, as JSON")
	flags.StringVar(&o.charts, "charts", "", "`directory` to write the charts to, as SVG")
	flags.IntVar(&o.n, "n", 0, "measure with this `number` of Echoes only; the full benchmark measures with 100 to 5,000")
	flags.IntVar(&o.turns, "turns", 5, "`number` of turns of the operator and the baseline client, 1 or more")
	flags.StringVar(&o.recorded, "check", "", "run only the regression check against the recorded baseline in this `file`")
	flags.BoolVar(&o.record, "record", false, "write the measured figures to the file of -check instead of comparing with it")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: only flags are allowed", flags.Arg(0))
	case o.turns < 1:
		return o, fmt.Errorf("-turns is %d, want 1 or more", o.turns)
	case o.n < 0:
		return o, fmt.Errorf("-n is %d, want 1 or more, or 0 for the full benchmark", o.n)
	case o.record && o.recorded == "":
		return o, errors.New("-record needs -check, which names the file")
	}
	return o, nil
}

// full reports whether to run the full benchmark, or only what takes two minutes.
func (o options) full() bool { return o.n == 0 }

// steadyStateDuration is how long to count the requests for converged Echoes.
func (o options) steadyStateDuration() time.Duration {
	if o.full() {
		return 10 * time.Minute
	}
	return 3 * time.Second
}

// churnDuration is how long to change Echoes at a constant rate.
func (o options) churnDuration() time.Duration {
	if o.full() {
		return 5 * time.Minute
	}
	return 2 * time.Second
}

// requestSampleSize is the number of Echoes to count requests for. Every Echo causes the same
// requests, so a small sample is enough.
func (o options) requestSampleSize() int {
	if o.full() {
		return 100
	}
	return min(10, o.n)
}

// sizes are the numbers of Echoes to measure with.
func (o options) sizes() []int {
	if !o.full() {
		return []int{o.n}
	}
	return []int{100, 500, 1000, 5000}
}

func (o options) largestSize() int { return o.sizes()[len(o.sizes())-1] }

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if o.recorded != "" {
		return o.checkRegressions(ctx)
	}
	r := &report{Machine: fmt.Sprintf("%d cores, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH),
		Date: time.Now().UTC().Format(time.DateOnly), Turns: o.turns}
	err = errors.Join(o.measureWithControllers(ctx, r), o.measureOnBareAPIServer(ctx, r))
	if o.full() { // The regression check measures memory in half a minute.
		err = errors.Join(err, o.measureMemory(ctx, r))
	}
	r.print(os.Stdout) // An error does not discard earlier results.
	if o.charts != "" {
		err = errors.Join(err, r.drawCharts(o.charts))
	}
	if o.report != "" {
		err = errors.Join(err, r.save(o.report))
	}
	return err
}

// progress prints a step of the benchmark with the time of day.
func progress(format string, args ...any) {
	fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

// drawCharts writes the charts that have more than one point.
func (r *report) drawCharts(directory string) error {
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return err
	}
	if len(r.Growth) > 1 {
		if err := drawChart(filepath.Join(directory, "growth.svg"), "Time to converge", "Echoes", "ms per Echo", r.Growth); err != nil {
			return err
		}
	}
	if len(r.Workers) > 1 {
		return drawChart(filepath.Join(directory, "workers.svg"), "Concurrent reconciliations", "workers", "ratio to the baseline client", r.Workers)
	}
	return nil
}

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
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

type options struct {
	root string
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
	flags.IntVar(&o.n, "n", 0, "measure with this `number` of Echoes only; the full benchmark measures with 1,000 and 5,000")
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
	fmt.Printf("%d cores, %s/%s, %d turns\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, o.turns)
	var r report
	err = o.measure(ctx, &r)
	r.print(os.Stdout) // An error does not discard earlier results.
	return err
}

// progress prints a step of the benchmark with the time of day.
func progress(format string, args ...any) {
	fmt.Printf("%s "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

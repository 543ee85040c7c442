// Chaos tries to break the operator: the real program against a real API server and
// controller manager, behind a proxy that makes faults. It prints what it did and what it
// found, and fails where it found something.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options are what can be chosen.
type options struct {
	root, report, part, scenario string
	runs, seed                   uint64
	workers                      int
	mutants, short               bool
}

// part is one way to break the operator.
type part struct {
	name string
	// scenarios lists what happens in it.
	scenarios func(context.Context, options) ([]scenario, error)
	// alone is true where no two scenarios may run beside each other.
	alone bool
}

var parts = []part{
	{name: "crash points", scenarios: crashPoints},
	{name: "stale reads", scenarios: staleReads},
	{name: "schedules", scenarios: schedules},
	{name: "operations", scenarios: operations},
	{name: "other writers", scenarios: otherWriters},
	{name: "rejections", scenarios: rejections},
	{name: "failing pods", scenarios: failingPods},
	{name: "outages", scenarios: outages, alone: true},
	{name: "two leaders", scenarios: leaders},
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the project's `directory`")
	flags.StringVar(&o.report, "report", "", "the `file` that takes the report, as JSON")
	flags.StringVar(&o.part, "part", "", "run only the part of this `name`")
	flags.StringVar(&o.scenario, "scenario", "", "run only scenarios whose name has this `text`")
	flags.Uint64Var(&o.runs, "runs", 50, "the `number` of random schedules")
	flags.Uint64Var(&o.seed, "seed", 1, "the `seed` of the first of them, or of the sample of broken operators that -short runs (0: all)")
	flags.IntVar(&o.workers, "workers", 8, "the `number` of scenarios that run at a time")
	flags.BoolVar(&o.short, "short", false, "take minutes in place of an hour")
	flags.BoolVar(&o.mutants, "mutants", false, "run broken operators, each of which has to be caught")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: only flags are allowed", flags.Arg(0))
	}
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
		if p.name == o.part {
			return o, nil
		}
	}
	if o.part != "" {
		return o, fmt.Errorf("-part is %q: it must be one of %s", o.part, strings.Join(names, ", "))
	}
	return o, nil
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	directory, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return err
	}
	b, err := newBed(ctx, o, directory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop(ctx)) }()

	var r report
	if o.mutants {
		err = b.huntMutants(ctx, o, &r)
	} else {
		err = b.campaign(ctx, o, &r)
	}
	r.print(os.Stdout)
	if o.report != "" {
		err = errors.Join(err, r.write(o.report))
	}
	if err != nil {
		return fmt.Errorf("%w\nThe logs are in %s", err, directory)
	}
	return os.RemoveAll(directory)
}

// campaign runs all parts, or the one that was asked for.
func (b *bed) campaign(ctx context.Context, o options, r *report) error {
	failed := 0
	for _, p := range parts {
		if o.part != "" && p.name != o.part {
			continue
		}
		fmt.Printf("\033[1m%s\033[0m\n", p.name)
		results, err := b.play(ctx, []part{p}, o, b.program)
		if err != nil {
			return err
		}
		r.Parts = append(r.Parts, results...)
		failed += results[0].Failed
	}
	if failed > 0 {
		return fmt.Errorf("%d scenarios failed", failed)
	}
	return nil
}

func absolute(elements ...string) (string, error) { return filepath.Abs(filepath.Join(elements...)) }

// Chaos tries to break the operator: it runs the real program against a real API server and
// controller manager, behind a proxy that injects faults. It reports what it did and what it
// found, and fails if it found anything.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/mutants"
	"github.com/kkloud-io/echo-operator/test/chaos/scenarios"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// options are the command line flags.
type options struct {
	harness.Options
	report, suite string
	mutants       bool
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.StringVar(&o.Root, "root", ".", "root `directory` of the project")
	flags.StringVar(&o.report, "report", "", "write the report to this `file`, as JSON")
	flags.StringVar(&o.suite, "suite", "", "run only the suite of this `name`")
	flags.StringVar(&o.Scenario, "scenario", "", "run only scenarios (with -mutants: mutants) whose name contains this `text`")
	flags.Uint64Var(&o.Runs, "runs", 50, "`number` of random schedules")
	flags.Uint64Var(&o.Seed, "seed", 1, "`seed` of the first random schedule")
	flags.BoolVar(&o.Short, "short", false, "run the fixed core, which takes minutes instead of hours")
	flags.BoolVar(&o.mutants, "mutants", false, "run mutation tests: the fixed core of a suite has to catch each mutant of the operator")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q: chaos takes flags only", flags.Arg(0))
	}
	if len(o.suites()) == 0 {
		return o, fmt.Errorf("there is no suite %q", o.suite)
	}
	return o, nil
}

// suites returns the suites that the flags select.
func (o options) suites() []harness.Suite {
	return slices.DeleteFunc(slices.Clone(scenarios.Suites), func(s harness.Suite) bool {
		if o.suite == "" {
			return o.Short && s.Long
		}
		return s.Name != o.suite
	})
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
	h, err := harness.Start(ctx, o.Root, directory)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Stop(ctx)) }()

	var r report
	if o.mutants {
		r.Mutants, err = mutants.Run(ctx, h, o.suites(), o.Options)
	} else {
		r.Suites, err = runSuites(ctx, h, o)
	}
	r.print(os.Stdout)
	if o.report != "" {
		err = errors.Join(err, r.write(o.report))
	}
	if err != nil {
		return fmt.Errorf("%w\nlogs: %s", err, directory)
	}
	return os.RemoveAll(directory)
}

// runSuites runs the suites. Those of a group share the workers: most of a scenario is waiting, and
// at the end of a group most workers are idle.
func runSuites(ctx context.Context, h *harness.Harness, o options) (all []harness.SuiteResult, err error) {
	failed := 0
	for _, group := range groups(o.suites()) {
		var names []string
		for _, suite := range group {
			names = append(names, suite.Name)
		}
		fmt.Printf("\033[1m%s\033[0m\n", strings.Join(names, ", "))
		results, err := h.Run(ctx, group, o.Options, h.Program)
		if err != nil {
			return all, err
		}
		all = append(all, results...)
		for _, result := range results {
			failed += result.Failed
		}
	}
	if failed > 0 {
		return all, fmt.Errorf("%d scenarios failed", failed)
	}
	return all, nil
}

// groups returns the suites in groups. In the first group are all that may run at the same time, the
// last one first, because the scenarios of the last suites are the longest.
func groups(suites []harness.Suite) (all [][]harness.Suite) {
	var together []harness.Suite
	for _, suite := range slices.Backward(suites) {
		if suite.Separate {
			all = append(all, []harness.Suite{suite})
		} else {
			together = append(together, suite)
		}
	}
	if len(together) > 0 {
		all = append([][]harness.Suite{together}, all...)
	}
	return all
}

package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scenario is one way to disturb an operator. It starts with empty namespaces and a running
// operator, and ends with Verify.
type Scenario struct {
	// Name identifies it within its suite.
	Name string
	// Run runs it.
	Run func(context.Context, *Environment) error
}

// Suite is a group of scenarios.
type Suite struct {
	// Name identifies the suite.
	Name string
	// Scenarios returns what it consists of.
	Scenarios func(Options) ([]Scenario, error)
	// Separate is true if its scenarios do not run beside those of other suites, because they
	// measure times or slow down the API server.
	Separate bool
	// MaxWorkers is the maximum number of its scenarios that run at the same time, unless scenarios of
	// other suites run beside them. 0 means any number.
	MaxWorkers int
	// Long is true if its fixed core takes minutes, too. The short form omits it, unless it is the selected suite.
	Long bool
}

// Options choose scenarios, and how they run.
type Options struct {
	// Root is the root directory of the project.
	Root string
	// Scenario selects the scenarios whose name contains it.
	Scenario string
	// Runs is the number of random schedules, Seed the seed of the first of them.
	Runs, Seed uint64
	// Short selects the fixed core.
	Short bool
	// StopAtFailure ends a suite at its first failure, without printing the failure.
	StopAtFailure bool
}

// workers is the number of scenarios that run at the same time: most of a scenario is waiting.
const workers = 8

// progressInterval is how often the progress of a suite is printed.
const progressInterval = time.Minute

// suiteRun is a suite that runs.
type suiteRun struct {
	ctx       context.Context // Done when the suite stops at a failure.
	stop      context.CancelFunc
	scenarios []Scenario
	start     time.Time
	result    SuiteResult
}

// task is a scenario to run.
type task struct {
	scenario Scenario
	run      *suiteRun
}

// Run runs the scenarios of suites against the program, several at a time.
func (h *Harness) Run(ctx context.Context, suites []Suite, o Options, program string) (results []SuiteResult, err error) {
	var runs []*suiteRun
	parallel := workers
	for _, suite := range suites {
		scenarios, err := suite.Scenarios(o)
		if err != nil {
			return nil, err
		}
		scenarios = slices.DeleteFunc(scenarios, func(s Scenario) bool { return !strings.Contains(s.Name, o.Scenario) })
		run := &suiteRun{scenarios: scenarios, result: SuiteResult{Suite: suite.Name, Faults: map[string]int{}, Times: map[string]float64{}}}
		run.ctx, run.stop = context.WithCancel(ctx)
		defer run.stop()
		if suite.MaxWorkers > 0 && len(suites) == 1 {
			parallel = suite.MaxWorkers
		}
		runs = append(runs, run)
	}
	h.runAll(runs, parallel, o.StopAtFailure, program)
	for _, run := range runs {
		results = append(results, run.result)
	}
	return results, ctx.Err()
}

func (h *Harness) runAll(runs []*suiteRun, parallel int, stopAtFailure bool, program string) {
	var (
		printed = time.Now()
		mu      sync.Mutex
		group   sync.WaitGroup
		queue   = make(chan task)
	)
	for number := range parallel {
		group.Go(func() {
			for t := range queue {
				start := time.Now()
				outcome := h.runScenario(t.run.ctx, t.scenario, number, program)
				outcome.took = time.Since(start)
				mu.Lock()
				t.run.add(outcome, stopAtFailure)
				if now := time.Now(); now.Sub(printed) > progressInterval {
					printed = now
					printProgress(now, runs)
				}
				mu.Unlock()
			}
		})
	}
	for _, run := range runs {
		run.start = time.Now()
		for _, s := range run.scenarios {
			if run.ctx.Err() == nil {
				queue <- task{s, run}
			}
		}
	}
	close(queue)
	group.Wait()
}

// add adds the outcome of a scenario to the result.
func (r *suiteRun) add(o outcome, stopAtFailure bool) {
	if r.ctx.Err() != nil {
		return
	}
	r.result.add(o, !stopAtFailure)
	r.result.Seconds = time.Since(r.start).Seconds()
	if r.result.Failed > 0 && stopAtFailure {
		r.stop()
	}
}

func printProgress(now time.Time, runs []*suiteRun) {
	done, total, failed := 0, 0, 0
	for _, r := range runs {
		done, total, failed = done+r.result.Scenarios, total+len(r.scenarios), failed+r.result.Failed
	}
	fmt.Printf("%s %d of %d scenarios, %d failed\n", now.Format(time.TimeOnly), done, total, failed)
}

// outcome is the outcome of a scenario.
type outcome struct {
	name         string
	took         time.Duration
	err          error
	faults       map[string]int
	restarts     int
	measurements []Measurement
}

func (h *Harness) runScenario(ctx context.Context, s Scenario, number int, program string) outcome {
	e, err := h.newEnvironment(ctx, number, program)
	if err != nil {
		return outcome{name: s.Name, err: err}
	}
	if err = e.StartOperator(); err == nil {
		err = s.Run(ctx, e)
	}
	if err != nil {
		err = fmt.Errorf("%w\nlogs: %s", err, strings.Join(e.logs, " "))
	}
	o := outcome{name: s.Name, faults: e.Proxy.Faults(), restarts: e.Restarts, measurements: e.measurements}
	o.err = errors.Join(err, e.tearDown(context.WithoutCancel(ctx)))
	return o
}

// SuiteResult is the result of a suite.
type SuiteResult struct {
	// Suite is its name.
	Suite string `json:"suite"`
	// Scenarios, Failed, Restarts and Faults count what happened.
	Scenarios int            `json:"scenarios"`
	Failed    int            `json:"failed"`
	Restarts  int            `json:"restarts"`
	Faults    map[string]int `json:"faults,omitempty"`
	// Seconds is how long it took, and Times how long each scenario took.
	Seconds float64            `json:"seconds"`
	Times   map[string]float64 `json:"times"`
	// Failures names the scenarios that failed.
	Failures     []string      `json:"failures,omitempty"`
	Measurements []Measurement `json:"measurements,omitempty"`
}

func (r *SuiteResult) add(o outcome, printFailure bool) {
	r.Scenarios++
	r.Times[o.name] = o.took.Seconds()
	r.Restarts += o.restarts
	r.Measurements = append(r.Measurements, o.measurements...)
	for class, count := range o.faults {
		r.Faults[class] += count
	}
	if o.err == nil {
		return
	}
	r.Failed++
	r.Failures = append(r.Failures, o.name)
	if printFailure {
		fmt.Printf("FAILED %s, %s: %v\nreplay: %s\n", r.Suite, o.name, o.err, replayCommand(r.Suite, o.name))
	}
}

// SeedPrefix starts the name of every random schedule. The seed follows.
const SeedPrefix = "seed "

func replayCommand(suite, scenario string) string {
	if seed, ok := strings.CutPrefix(scenario, SeedPrefix); ok {
		return "make chaos SEED=" + seed
	}
	return fmt.Sprintf("make chaos SUITE=%q SCENARIO=%q", suite, scenario)
}

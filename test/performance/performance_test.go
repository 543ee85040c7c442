// Package performance measures the operator against a baseline client: a client without watches
// that writes the very objects that the operator writes.
//
// Both run against a real etcd and kube-apiserver. The ratio of both is comparable between
// machines; seconds are not.
package performance

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var (
	size   = flag.Int("echoes", 0, "`number` of Echoes of the benchmark; 0 skips it")
	runs   = flag.Int("runs", 5, "`number` of times to measure what varies")
	check  = flag.Bool("check", false, "fail if a figure exceeds the recorded baseline")
	record = flag.Bool("record", false, "record the baseline")
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	m.Run()
}

// TestBenchmark reports what the operator costs. It fails only if it cannot measure.
func TestBenchmark(t *testing.T) {
	if *size == 0 {
		t.Skip("without -echoes")
	}
	t.Run("with pods", func(t *testing.T) {
		steadyState := settleTime
		if *size >= 1000 {
			steadyState = 10 * time.Minute
		}
		e := newEnvironment(t, false)
		e.measureRequests(isReady, steadyState)
		e.measureReady()
	})
	t.Run("without pods", func(t *testing.T) {
		e := newEnvironment(t, true)
		e.measureRequests(isConverged, settleTime)
		e.measureTimes(*size, *runs)
		e.measureMemory(*size)
		e.measureStarts(*size, *runs)
		e.measureIsolation(min(*size, 2000), *runs)
	})
}

const baselineFile = "recorded_baseline.json"

// TestRegressions compares figures that are the same on every machine with the recorded baseline.
func TestRegressions(t *testing.T) {
	if !*check && !*record {
		t.Skip("without -check and -record")
	}
	e := newEnvironment(t, true)
	text, err := os.ReadFile(baselineFile)
	e.must(err)
	var recorded []figure
	e.must(json.Unmarshal(text, &recorded))
	const n = 250
	e.measureRequests(isConverged, settleTime)
	e.measureMemory(n)
	others := e.figures
	if messages := regressions(recorded[:min(len(others), len(recorded))], others); !*record && len(messages) > 0 {
		t.Fatal(strings.Join(messages, "\n"))
	}
	// A CPU time varies by a tenth from run to run, and the median of few runs with it.
	e.measureTimes(n, 3)
	if *record || len(regressions(recorded, e.figures)) > 0 {
		e.figures = others
		e.measureTimes(n, 12)
	}
	if *record {
		text, err := json.MarshalIndent(e.figures, "", "  ")
		e.must(err)
		e.must(os.WriteFile(baselineFile, append(text, '\n'), 0o644))
		return
	}
	if messages := regressions(recorded, e.figures); len(messages) > 0 {
		t.Error(strings.Join(messages, "\n"))
	}
}

// figure is a measurement that is the same on every machine, within its tolerance.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Tolerance is how much larger than the recorded value a measured value may be.
	Tolerance float64 `json:"tolerance"`
}

// report prints a figure, and returns the median.
func report(name string, values []float64) (median float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	median = (sorted[(n-1)/2] + sorted[n/2]) / 2
	fmt.Printf("%s: %.4g (%.4g to %.4g)\n", name, median, sorted[0], sorted[n-1])
	return median
}

// compare reports a figure that has to stay within the tolerance, and a fraction of its value, of
// the recorded baseline. It rounds: further digits vary from run to run.
func (e *environment) compare(name string, tolerance, fraction float64, values ...float64) {
	value := report(name, values)
	round := func(f float64) float64 { return math.Round(100*f) / 100 }
	e.figures = append(e.figures, figure{Name: name, Value: round(value), Tolerance: round(tolerance + fraction*value)})
}

// regressions returns a message for each figure that is larger than allowed.
func regressions(recorded, measured []figure) (messages []string) {
	if !slices.EqualFunc(recorded, measured, func(r, m figure) bool { return r.Name == m.Name }) {
		return []string{baselineFile + " has other figures: run make bench-check RECORD=1"}
	}
	for i, m := range measured {
		if allowed := recorded[i].Value + recorded[i].Tolerance; m.Value > allowed {
			messages = append(messages, fmt.Sprintf("%s = %.4g, want at most %.4g", m.Name, m.Value, allowed))
		}
	}
	return messages
}

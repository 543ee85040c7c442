// Package metrics defines the operator's own metrics, in addition to those of
// controller-runtime. Their names and labels are an API: alerts and dashboards rely on them.
package metrics

import (
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kkloud-io/echo-operator/internal/children"
)

const prefix = "echo_operator_"

// Metrics are the metrics that the reconciler updates.
type Metrics struct {
	// TimeToReady observes how long a new Echo takes to become ready, in seconds.
	TimeToReady prometheus.Histogram
	// Corrections counts the children that were reverted or recreated, and Conflicts those that a reconciliation skipped, by kind.
	Corrections, Conflicts *prometheus.CounterVec
}

// New creates the metrics of an operator of the given version and registers them.
func New(registry prometheus.Registerer, version string) *Metrics {
	m := &Metrics{
		TimeToReady: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    prefix + "time_to_ready_seconds",
			Help:    "Time from the creation of an Echo until it first became ready, in seconds.",
			Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800},
		}),
		Corrections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "drift_corrections_total",
			Help: "Number of children that the operator reverted or recreated after a third-party change or deletion. An upgrade that changes their desired state counts, too.",
		}, []string{"kind"}),
		Conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "conflicts_total",
			Help: "Number of times a reconciliation skipped a child because an object with its name is not controlled by the Echo. The operator retries while the conflict lasts.",
		}, []string{"kind"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        prefix + "build_info",
		Help:        "Always 1. The labels contain the version of the operator and the Go version that built it.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	for _, counter := range []*prometheus.CounterVec{m.Corrections, m.Conflicts} {
		for _, kind := range children.Kinds {
			counter.WithLabelValues(kind.Name) // Start at 0, so that the first event counts as an increase.
		}
	}
	registry.MustRegister(m.TimeToReady, m.Corrections, m.Conflicts, build)
	return m
}

// NamespaceServed reports for each watched namespace whether the operator serves it, because it is readable.
func NamespaceServed(watched, readable []string) prometheus.Collector {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: prefix + "namespace_served",
		Help: "Whether the operator serves a watched namespace: 0 if it could not read the namespace when it started, otherwise 1. Only an operator that does not watch all namespaces has this metric.",
	}, []string{"watched_namespace"})
	for _, namespace := range watched {
		gauge.WithLabelValues(namespace).Set(map[bool]float64{true: 1}[slices.Contains(readable, namespace)])
	}
	return gauge
}

// LongestWait reports the longest time that a changed Echo waits for the others of its namespace.
func LongestWait(wait func() time.Duration) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        prefix + "longest_wait_seconds",
		Help:        "Longest time that a changed Echo now waits, outside the queue, until fewer Echoes of its namespace are reconciled, in seconds. 0 if none waits.",
		ConstLabels: prometheus.Labels{"controller": "echo"},
	}, func() float64 { return wait().Seconds() })
}

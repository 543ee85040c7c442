// Package metrics has what the operator tells about itself in numbers, beside what its library
// does. Its names and labels are a public contract: alerts and dashboards rely on them.
package metrics

import (
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kkloud-io/echo-operator/internal/children"
)

const prefix = "echo_operator_"

// Metrics are those that the operator counts itself.
type Metrics struct {
	timeToReady prometheus.Histogram
	corrections *prometheus.CounterVec
	conflicts   *prometheus.CounterVec
}

// New registers the metrics of an operator of this version.
func New(registry prometheus.Registerer, version string) *Metrics {
	m := &Metrics{
		timeToReady: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    prefix + "time_to_ready_seconds",
			Help:    "Time from the creation of an Echo until it was ready for the first time.",
			Buckets: []float64{1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800},
		}),
		corrections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "drift_corrections_total",
			Help: "Children that were put back after somebody had changed or deleted them; an upgrade that shapes them otherwise counts, too.",
		}, []string{"kind"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "conflicts_total",
			Help: "Passes that left a child out as an object of its name belongs to somebody else; they are repeated while it does.",
		}, []string{"kind"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        prefix + "build_info",
		Help:        "1, with the version of the operator, and of the Go that built it.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	for _, counter := range []*prometheus.CounterVec{m.corrections, m.conflicts} {
		for _, kind := range children.Kinds {
			counter.WithLabelValues(kind.Name) // From 0, so that the first one is seen as an increase.
		}
	}
	registry.MustRegister(m.timeToReady, m.corrections, m.conflicts, build)
	return m
}

// BecameReady notes how long it took a new Echo to become ready.
func (m *Metrics) BecameReady(after time.Duration) { m.timeToReady.Observe(after.Seconds()) }

// Corrected notes that a child of this kind was put back.
func (m *Metrics) Corrected(kind string) { m.corrections.WithLabelValues(kind).Inc() }

// InConflict notes that a pass left out a child of this kind.
func (m *Metrics) InConflict(kind string) { m.conflicts.WithLabelValues(kind).Inc() }

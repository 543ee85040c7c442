package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NamespaceServed reports for each watched namespace whether the operator serves it.
func NamespaceServed(served map[string]bool) prometheus.Collector {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: prefix + "namespace_served",
		Help: "Whether the operator serves a watched namespace: 0 if it could not read the namespace when it started, otherwise 1. Only an operator that does not watch all namespaces has this metric.",
	}, []string{"watched_namespace"})
	for namespace, isServed := range served {
		gauge.WithLabelValues(namespace).Set(map[bool]float64{true: 1}[isServed])
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

package metrics

import "github.com/prometheus/client_golang/prometheus"

const namespaceServedHelp = "Whether the operator serves a watched namespace: 1 if its caches of the namespace are complete and up to date, otherwise 0. Only an operator that does not watch all namespaces has this metric."

var namespaceServed = prometheus.NewDesc(prefix+"namespace_served", namespaceServedHelp, []string{"watched_namespace"}, nil)

// Namespaces is a collector that reports for each watched namespace whether the operator serves it.
type Namespaces struct {
	// Served returns the watched namespaces. It is empty if the operator watches all.
	Served func() map[string]bool
}

// Describe implements prometheus.Collector.
func (n Namespaces) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- namespaceServed }

// Collect implements prometheus.Collector.
func (n Namespaces) Collect(collected chan<- prometheus.Metric) {
	for namespace, isServed := range n.Served() {
		value := 0.0
		if isServed {
			value = 1
		}
		collected <- prometheus.MustNewConstMetric(namespaceServed, prometheus.GaugeValue, value, namespace)
	}
}

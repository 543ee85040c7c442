package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// listTimeout bounds a scrape that comes before the operator has seen the cluster.
const listTimeout = time.Second

var (
	echoes = prometheus.NewDesc(prefix+"echoes",
		"Echoes by each of their conditions, its status and its reason.", []string{"condition", "status", "reason"}, nil)
	longestNotReady = prometheus.NewDesc(prefix+"longest_not_ready_seconds",
		"For how long the Echo has not been ready of which that is longest true; 0 where all are.", nil, nil)
)

// Echoes counts the Echoes of a cache whenever it is asked. So nothing has to be kept up to
// date, and there are as many series for ten Echoes as for ten thousand.
type Echoes struct {
	// Cache has the Echoes.
	Cache client.Reader
}

// Describe implements prometheus.Collector.
func (e Echoes) Describe(descriptions chan<- *prometheus.Desc) {
	descriptions <- echoes
	descriptions <- longestNotReady
}

// state is what Echoes are counted by.
type state struct {
	condition string
	status    metav1.ConditionStatus
	reason    string
}

// Collect implements prometheus.Collector. Where the cache cannot be read, there is nothing to
// tell, and the other metrics are told all the same.
func (e Echoes) Collect(collected chan<- prometheus.Metric) {
	ctx, stop := context.WithTimeout(context.Background(), listTimeout)
	defer stop()
	var list echov1.EchoList
	if err := e.Cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	counts, since := count(list.Items)
	for s, n := range counts {
		collected <- prometheus.MustNewConstMetric(echoes, prometheus.GaugeValue, n, s.condition, string(s.status), s.reason)
	}
	longest := 0.0
	if !since.IsZero() {
		longest = time.Since(since).Seconds()
	}
	collected <- prometheus.MustNewConstMetric(longestNotReady, prometheus.GaugeValue, longest)
}

// count counts the conditions, and returns since when an Echo has not been ready.
func count(echoes []echov1.Echo) (counts map[state]float64, notReadySince time.Time) {
	counts = map[state]float64{}
	for i := range echoes {
		echo := &echoes[i]
		for _, c := range echo.Status.Conditions {
			counts[state{c.Type, c.Status, c.Reason}]++
		}
		since := echo.CreationTimestamp
		if ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady); ready != nil {
			if ready.Status == metav1.ConditionTrue {
				continue
			}
			since = ready.LastTransitionTime
		}
		if notReadySince.IsZero() || since.Time.Before(notReadySince) {
			notReadySince = since.Time
		}
	}
	return counts, notReadySince
}

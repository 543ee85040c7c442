package metrics

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// listTimeout bounds a scrape that arrives before the cache is synced.
const listTimeout = time.Second

var (
	echoes = prometheus.NewDesc(prefix+"echoes",
		"Number of Echoes by condition, status and reason. The condition Overridden is True for an Echo with a child that admission changed and the operator accepted. The condition Routed has the reason RouteRejected for every rejection by a Gateway. Only Echoes with a verification have the condition Verified.", []string{"condition", "status", "reason"}, nil)
	longestNotReady = prometheus.NewDesc(prefix+"longest_not_ready_seconds",
		"Time since the longest-unready Echo was last ready, in seconds. 0 if all Echoes are ready. An Echo that is being deleted is not ready; an Overridden Echo may be.", nil, nil)
)

// state is the set of labels of the metric echoes.
type state struct {
	condition string
	status    metav1.ConditionStatus
	reason    string
}

// Echoes returns a collector that counts the Echoes of a cache at each scrape. It keeps no state, and the number of series
// does not depend on the number of Echoes. If the cache cannot be read, it returns no metrics, so that the scrape succeeds
// with the metrics of the other collectors.
func Echoes(cache client.Reader) prometheus.Collector {
	return prometheus.CollectorFunc(func(collected chan<- prometheus.Metric) {
		ctx, stop := context.WithTimeout(context.Background(), listTimeout)
		defer stop()
		var list echov1.EchoList
		if err := cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
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
	})
}

// count counts the conditions and returns the time since when the longest-unready Echo is not ready.
func count(echoes []echov1.Echo) (counts map[state]float64, notReadySince time.Time) {
	counts = map[state]float64{}
	for i := range echoes {
		echo := &echoes[i]
		for _, c := range echo.Status.Conditions {
			counts[state{c.Type, c.Status, reason(c)}]++
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

// ownReasons are the operator's reasons of the condition Routed.
var ownReasons = []string{
	echov1.ReasonAccepted, echov1.ReasonRouteNotCreated, echov1.ReasonRouteNotFound, echov1.ReasonRouteNotOverridable, echov1.ReasonRouteNotReconciled, echov1.ReasonGatewayAPINotInstalled,
	echov1.ReasonConflict, echov1.ReasonRejected, echov1.ReasonRepeatedDrift, echov1.ReasonProgressDeadlineExceeded,
}

// reason returns the label of a condition's reason. The reasons of Gateways' controllers are not
// bounded, so they have one label.
func reason(c metav1.Condition) string {
	if c.Type == echov1.ConditionRouted && !slices.Contains(ownReasons, c.Reason) {
		return echov1.ReasonRouteRejected
	}
	return c.Reason
}

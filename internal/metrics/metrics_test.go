package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/verifier"
)

var update = flag.Bool("update", false, "update docs/metrics.md")

const page = "../../docs/metrics.md"

// cacheOf is a cache that contains these Echoes, or that returns an error.
type cacheOf struct {
	client.Reader
	echoes []echov1.Echo
	err    error
}

func (c cacheOf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*echov1.EchoList).Items = c.echoes
	return c.err
}

// echo returns an Echo whose Ready condition has had this reason for the given time.
func echo(reason string, since time.Duration) echov1.Echo {
	status := metav1.ConditionFalse
	if reason == echov1.ReasonReady {
		status = metav1.ConditionTrue
	}
	return echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now().Add(-24 * time.Hour))},
		Status: echov1.EchoStatus{Conditions: []metav1.Condition{{
			Type: echov1.ConditionReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-since)),
		}}},
	}
}

// withCondition returns the Echo with a further condition, which it has had for a day.
func withCondition(echo echov1.Echo, conditionType string, status metav1.ConditionStatus, reason string) echov1.Echo {
	echo.Status.Conditions = append(slices.Clone(echo.Status.Conditions), metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-24 * time.Hour)),
	})
	return echo
}

// overridden returns the Echo with a child that admission changed.
func overridden(echo echov1.Echo) echov1.Echo {
	return withCondition(echo, echov1.ConditionOverridden, metav1.ConditionTrue, echov1.ReasonChangedByAdmission)
}

// routed returns the Echo with a route that was not accepted.
func routed(echo echov1.Echo, reason string) echov1.Echo {
	return withCondition(echo, echov1.ConditionRouted, metav1.ConditionFalse, reason)
}

// newRegistry returns a registry in which every metric has a value.
func newRegistry(echoes ...echov1.Echo) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	m := New(registry, "1.2.3")
	registry.MustRegister(Echoes(cacheOf{echoes: echoes}), NamespaceServed([]string{"team-a"}, []string{"team-a"}), LongestWait(func() time.Duration { return time.Minute }))
	m.TimeToReady.Observe(1)
	m.Corrections.WithLabelValues("Service").Inc()
	m.Conflicts.WithLabelValues("Service").Inc()
	return registry
}

func TestNamesFollowThePrometheusConventions(t *testing.T) {
	problems, err := testutil.GatherAndLint(newRegistry(echo(echov1.ReasonReady, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestEchoesAreCountedByCondition(t *testing.T) {
	withoutStatus := echov1.Echo{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}}
	want := `
		# HELP echo_operator_echoes Number of Echoes by condition, status and reason. The condition Overridden is True for an Echo with a child that admission changed and the operator accepted. The condition Routed has the reason RouteRejected for every rejection by a Gateway. Only Echoes with a verification have the condition Verified.
		# TYPE echo_operator_echoes gauge
		echo_operator_echoes{condition="Overridden",reason="ChangedByAdmission",status="True"} 1
		echo_operator_echoes{condition="Ready",reason="Conflict",status="False"} 1
		echo_operator_echoes{condition="Ready",reason="Ready",status="True"} 5
		echo_operator_echoes{condition="Routed",reason="RouteNotReconciled",status="False"} 1
		echo_operator_echoes{condition="Routed",reason="RouteRejected",status="False"} 2
		echo_operator_echoes{condition="Verified",reason="VerificationFailed",status="False"} 1
	`
	ready := echo(echov1.ReasonReady, time.Hour)
	notVerified := withCondition(ready, echov1.ConditionVerified, metav1.ConditionFalse, echov1.ReasonVerificationFailed)
	registry := newRegistry(notVerified, routed(ready, echov1.ReasonRouteNotReconciled), routed(ready, "NotAllowedByListeners"), routed(withoutStatus, "Any"), overridden(echo(echov1.ReasonReady, time.Hour)), withoutStatus, echo(echov1.ReasonConflict, time.Minute), echo(echov1.ReasonReady, time.Second))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "echo_operator_echoes"); err != nil {
		t.Error(err)
	}
}

func TestLongestNotReadyIsTheMaximumOverAllEchoes(t *testing.T) {
	start := time.Now()
	withoutStatus := echov1.Echo{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))}}
	for name, test := range map[string]struct {
		echoes []echov1.Echo
		want   time.Duration
	}{
		"no Echo":                      {nil, 0},
		"all are ready":                {[]echov1.Echo{echo(echov1.ReasonReady, time.Hour)}, 0},
		"the first is unready longest": {[]echov1.Echo{echo(echov1.ReasonConflict, time.Hour), echo(echov1.ReasonRollingOut, time.Minute)}, time.Hour},
		"the last is unready longest":  {[]echov1.Echo{echo(echov1.ReasonReady, 0), echo(echov1.ReasonConflict, time.Minute), echo(echov1.ReasonRollingOut, time.Hour)}, time.Hour},
		"one is ready and overridden":  {[]echov1.Echo{overridden(echo(echov1.ReasonReady, time.Hour))}, 0},
		"a child was rejected":         {[]echov1.Echo{echo(echov1.ReasonRejected, time.Hour)}, time.Hour},
		"a child drifts repeatedly":    {[]echov1.Echo{echo(echov1.ReasonRepeatedDrift, time.Hour)}, time.Hour},
		"one is being deleted":         {[]echov1.Echo{echo(echov1.ReasonTerminating, time.Hour)}, time.Hour},
		"one was never reconciled":     {[]echov1.Echo{echo(echov1.ReasonConflict, time.Minute), withoutStatus}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			for _, family := range gather(t, newRegistry(test.echoes...)) {
				if family.GetName() != "echo_operator_longest_not_ready_seconds" {
					continue
				}
				got := time.Duration(family.GetMetric()[0].GetGauge().GetValue() * float64(time.Second))
				if difference := got - test.want; difference < -time.Second || difference > time.Second+time.Since(start) {
					t.Errorf("echo_operator_longest_not_ready_seconds = %s, want %s", got, test.want)
				}
				return
			}
			t.Error("metric echo_operator_longest_not_ready_seconds does not exist")
		})
	}
}

func TestTenThousandEchoesWithEveryReasonHaveFewSeries(t *testing.T) {
	reasons := []string{
		echov1.ReasonReady, echov1.ReasonRollingOut, echov1.ReasonPodsNotReady, echov1.ReasonConflict, echov1.ReasonRejected,
		echov1.ReasonPodsRejected, echov1.ReasonImagePullFailed, echov1.ReasonContainerCreateFailed, echov1.ReasonCrashLooping,
		echov1.ReasonUnschedulable, echov1.ReasonProgressDeadlineExceeded, echov1.ReasonRepeatedDrift, echov1.ReasonTerminating,
	}
	echoes := make([]echov1.Echo, 10_000)
	for i := range echoes {
		echoes[i] = echo(reasons[i%len(reasons)], time.Minute)
		if i%2 == 0 {
			echoes[i] = overridden(echoes[i])
		}
	}
	series := 0
	for _, family := range gather(t, newRegistry(echoes...)) {
		series += len(family.GetMetric())
	}
	if limit := 19 + 2*len(children.Kinds); series > limit { // Two counters have a series for each kind.
		t.Errorf("number of series = %d, want at most %d", series, limit)
	}
}

// If a counter starts to exist with its first event, Prometheus sees no increase.
func TestCountersExistBeforeTheFirstEvent(t *testing.T) {
	registry := prometheus.NewRegistry()
	New(registry, "1.2.3")
	for _, name := range []string{"echo_operator_drift_corrections_total", "echo_operator_conflicts_total"} {
		if n, err := testutil.GatherAndCount(registry, name); n != len(children.Kinds) || err != nil {
			t.Errorf("%s has %d series, want %d, one for each kind of child; %v", name, n, len(children.Kinds), err)
		}
	}
}

func TestEachWatchedNamespaceIsServedOrNot(t *testing.T) {
	for name, test := range map[string]struct {
		watched, readable []string
		want              string
	}{
		"all namespaces": {nil, nil, ""},
		"two namespaces": {[]string{"team-a", "team-b"}, []string{"team-a"}, `
			# HELP echo_operator_namespace_served Whether the operator serves a watched namespace: 0 if it could not read the namespace when it started, otherwise 1. Only an operator that does not watch all namespaces has this metric.
			# TYPE echo_operator_namespace_served gauge
			echo_operator_namespace_served{watched_namespace="team-a"} 1
			echo_operator_namespace_served{watched_namespace="team-b"} 0
		`},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(NamespaceServed(test.watched, test.readable))
			if err := testutil.GatherAndCompare(registry, strings.NewReader(test.want)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnreadableCacheOmitsOnlyTheMetricsOfEchoes(t *testing.T) {
	registry := prometheus.NewRegistry()
	New(registry, "1.2.3")
	registry.MustRegister(Echoes(cacheOf{err: errors.New("not yet")}))
	names := namesOf(gather(t, registry))
	if slices.Contains(names, "echo_operator_echoes") || !slices.Contains(names, "echo_operator_build_info") {
		t.Errorf("metrics = %v, want echo_operator_build_info without echo_operator_echoes", names)
	}
}

func TestPageListsAllMetrics(t *testing.T) {
	var want bytes.Buffer
	runner := verifier.NewRunner(&verifier.Target{Layer: verifier.DNS}, time.Second, 1, slog.New(slog.DiscardHandler))
	families := map[string]any{"Operator": gather(t, newRegistry(echo(echov1.ReasonReady, 0))), "Verifier": gather(t, runner.Metrics())}
	if err := pageTemplate.Execute(&want, families); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(page, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s is out of date: run make docs", page)
	}
}

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{"type": kindOf, "labels": labelsOf}).Parse(
	`# Metrics

The operator serves its metrics by HTTPS at ` + "`:8443/metrics`" + `, to clients that the API server authorizes.
[monitoring.md](monitoring.md) describes how to scrape and query them. The operator also has the metrics of
[controller-runtime](https://book.kubebuilder.io/reference/metrics-reference). The names and labels below are part of the API. This page
is generated.

| Name | Type | Labels | Meaning |
|---|---|---|---|
{{range .Operator}}{{template "row" .}}{{end}}
Each container of a [verifier](echo.md#verify) serves its metrics by HTTP at ` + "`/metrics`" + `, to every client: on port 8081 for the
layer ` + "`dns`" + `, 8082 for ` + "`service`" + ` and 8083 for ` + "`route`" + `.

| Name | Type | Labels | Meaning |
|---|---|---|---|
{{range .Verifier}}{{template "row" .}}{{end}}
{{- define "row"}}| ` + "`{{.GetName}}`" + ` | {{type .}} | {{labels .}} | {{.GetHelp}} |
{{end}}`))

func kindOf(family *dto.MetricFamily) string { return strings.ToLower(family.GetType().String()) }

func labelsOf(family *dto.MetricFamily) string {
	var names []string
	for _, label := range family.GetMetric()[0].GetLabel() {
		names = append(names, fmt.Sprintf("`%s`", label.GetName()))
	}
	return strings.Join(names, ", ")
}

func namesOf(families []*dto.MetricFamily) (names []string) {
	for _, family := range families {
		names = append(names, family.GetName())
	}
	return names
}

func gather(t *testing.T, registry prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

package metrics

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
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
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const page = "../../docs/metrics.md"

// cacheOf is a cache that has these Echoes, or cannot be read.
type cacheOf struct {
	client.Reader
	echoes []echov1.Echo
	err    error
}

func (c cacheOf) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*echov1.EchoList).Items = c.echoes
	return c.err
}

// echo has been ready, or has not been for some reason, since some time ago.
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

// everything returns a registry in which every metric has a value.
func everything(echoes ...echov1.Echo) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	m := New(registry, "1.2.3")
	registry.MustRegister(Echoes{Cache: cacheOf{echoes: echoes}})
	m.BecameReady(time.Second)
	m.Corrected("Service")
	m.InConflict("Service")
	return registry
}

func TestNames(t *testing.T) {
	problems, err := testutil.GatherAndLint(everything(echo(echov1.ReasonReady, time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

func TestEchoes(t *testing.T) {
	young := echov1.Echo{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}} // Not looked at yet.
	want := `
		# HELP echo_operator_echoes Echoes by each of their conditions, its status and its reason.
		# TYPE echo_operator_echoes gauge
		echo_operator_echoes{condition="Ready",reason="Conflict",status="False"} 1
		echo_operator_echoes{condition="Ready",reason="Ready",status="True"} 2
	`
	registry := everything(echo(echov1.ReasonReady, time.Hour), young, echo(echov1.ReasonConflict, time.Minute), echo(echov1.ReasonReady, time.Second))
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "echo_operator_echoes"); err != nil {
		t.Error(err)
	}
}

func TestLongestNotReady(t *testing.T) {
	unseen := echov1.Echo{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour))}}
	for name, test := range map[string]struct {
		echoes []echov1.Echo
		want   time.Duration
	}{
		"no Echo":                      {nil, 0},
		"all are ready":                {[]echov1.Echo{echo(echov1.ReasonReady, time.Hour)}, 0},
		"the first is not for longest": {[]echov1.Echo{echo(echov1.ReasonConflict, time.Hour), echo(echov1.ReasonRollingOut, time.Minute)}, time.Hour},
		"the last is not for longest":  {[]echov1.Echo{echo(echov1.ReasonReady, 0), echo(echov1.ReasonConflict, time.Minute), echo(echov1.ReasonRollingOut, time.Hour)}, time.Hour},
		"one was never looked at":      {[]echov1.Echo{echo(echov1.ReasonConflict, time.Minute), unseen}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			for _, family := range gather(t, everything(test.echoes...)) {
				if family.GetName() != "echo_operator_longest_not_ready_seconds" {
					continue
				}
				got := time.Duration(family.GetMetric()[0].GetGauge().GetValue() * float64(time.Second))
				if difference := (got - test.want).Abs(); difference > time.Second {
					t.Errorf("got %s, want %s", got, test.want)
				}
				return
			}
			t.Error("there is no such metric")
		})
	}
}

// TestCardinality: ten thousand Echoes, with every reason that there is, make few series.
func TestCardinality(t *testing.T) {
	reasons := []string{
		echov1.ReasonReady, echov1.ReasonRollingOut, echov1.ReasonPodsNotReady, echov1.ReasonConflict, echov1.ReasonRejected,
		echov1.ReasonPodsRejected, echov1.ReasonImagePullFailed, echov1.ReasonContainerCreateFailed, echov1.ReasonCrashLooping,
		echov1.ReasonUnschedulable, echov1.ReasonProgressDeadlineExceeded,
	}
	echoes := make([]echov1.Echo, 10_000)
	for i := range echoes {
		echoes[i] = echo(reasons[i%len(reasons)], time.Minute)
	}
	series := 0
	for _, family := range gather(t, everything(echoes...)) {
		series += len(family.GetMetric())
	}
	if series > 20 {
		t.Errorf("%d series", series)
	}
}

// TestCountersBegin: a counter that is not there before its first count has no increase then.
func TestCountersBegin(t *testing.T) {
	registry := prometheus.NewRegistry()
	New(registry, "1.2.3")
	for _, name := range []string{"echo_operator_drift_corrections_total", "echo_operator_conflicts_total"} {
		if n, err := testutil.GatherAndCount(registry, name); n != len(children.Kinds) || err != nil {
			t.Errorf("%s has %d series, want one for each kind of child; %v", name, n, err)
		}
	}
}

// TestUnreadable: what cannot be read is left out, and the rest is told.
func TestUnreadable(t *testing.T) {
	registry := prometheus.NewRegistry()
	New(registry, "1.2.3")
	registry.MustRegister(Echoes{Cache: cacheOf{err: errors.New("not yet")}})
	names := namesOf(gather(t, registry))
	if slices.Contains(names, "echo_operator_echoes") || !slices.Contains(names, "echo_operator_build_info") {
		t.Errorf("got %v", names)
	}
}

// TestPage: docs/metrics.md lists what there is.
func TestPage(t *testing.T) {
	var want bytes.Buffer
	if err := pageTemplate.Execute(&want, gather(t, everything(echo(echov1.ReasonReady, 0)))); err != nil {
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
		t.Errorf("%s is not current: run make docs", page)
	}
}

var pageTemplate = template.Must(template.New("").Funcs(template.FuncMap{"type": kindOf, "labels": labelsOf}).Parse(
	`# Metrics

The operator serves them at ` + "`:8443/metrics`" + `, by HTTPS, to whom the API server lets read them; [monitoring.md](monitoring.md) says how,
and what they answer. Beside those of [controller-runtime](https://book.kubebuilder.io/reference/metrics-reference) there are these of
its own. Names and labels are promises. This page is generated.

| name | type | labels | |
|---|---|---|---|
{{range .}}| ` + "`{{.GetName}}`" + ` | {{type .}} | {{labels .}} | {{.GetHelp}} |
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

func gather(t *testing.T, registry *prometheus.Registry) []*dto.MetricFamily {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

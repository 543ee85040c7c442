package monitoring

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestDashboardIsWhole(t *testing.T) {
	if text := load(t, root+"/"+dashboardFile); !json.Valid(text) {
		t.Fatal("it is not JSON, which Grafana asks for")
	}
	panels, err := Dashboard(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(panels) == 0 {
		t.Fatal("it has no panels")
	}
	for i, panel := range panels {
		if panel.Title == "" {
			t.Errorf("panel %d has no title", panel.ID)
		}
		if panel.Type != "row" && (panel.Description == "" || len(panel.Targets) == 0) {
			t.Errorf("panel %q has no description, or shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			if len(Metrics(target.Expr)) == 0 || target.LegendFormat == "" {
				t.Errorf("panel %q: %q has no metric of the operator's, or no legend", panel.Title, target.Expr)
			}
		}
		if at := panel.GridPos; at.X < 0 || at.Y < 0 || at.W < 1 || at.H < 1 || at.X+at.W > 24 {
			t.Errorf("panel %q is not on the grid: %+v", panel.Title, at)
		}
		for _, other := range panels[:i] {
			if panel.ID == other.ID {
				t.Errorf("panels %q and %q have the same id", panel.Title, other.Title)
			}
			if overlap(panel.GridPos, other.GridPos) {
				t.Errorf("panels %q and %q overlap", panel.Title, other.Title)
			}
		}
	}
}

func overlap(a, b GridPos) bool {
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

func TestMetrics(t *testing.T) {
	for expr, want := range map[string][]string{
		`absent(echo_operator_build_info)`:                                  {"echo_operator_build_info"},
		`sum by (go) (rate(rest_client_requests_total{job="a_b"}[5m])) > 2`: {"rest_client_requests_total"},
		`workqueue_depth and on (pod) leader_election_master_status == 1`:   {"workqueue_depth", "leader_election_master_status"},
		`label_values(process_cpu_seconds_total, pod)`:                      {"process_cpu_seconds_total"},
		`up{job="echo-operator-metrics"} or kube_echo_spec_replicas`:        nil,
	} {
		if got := Metrics(expr); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", expr, got, want)
		}
	}
}

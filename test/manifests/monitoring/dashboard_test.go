package monitoring

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

func TestDashboardPanelsAreCompleteAndDoNotOverlap(t *testing.T) {
	if text := repo.Read(t, repo.Root+"/"+dashboardFile); !json.Valid(text) {
		t.Fatalf("%s is not valid JSON, which Grafana requires", dashboardFile)
	}
	panels, err := Dashboard(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	if len(panels) == 0 {
		t.Fatalf("%s has no panels", dashboardFile)
	}
	for i, panel := range panels {
		if panel.Title == "" {
			t.Errorf("panel %d has no title", panel.ID)
		}
		if panel.Type != "row" && (panel.Description == "" || len(panel.Targets) == 0) {
			t.Errorf("panel %q has no description or no query", panel.Title)
		}
		for _, target := range panel.Targets {
			if len(Metrics(target.Expr)) == 0 || target.LegendFormat == "" {
				t.Errorf("panel %q: query %q contains no metric of the operator, or has no legend", panel.Title, target.Expr)
			}
		}
		if at := panel.GridPos; at.X < 0 || at.Y < 0 || at.W < 1 || at.H < 1 || at.X+at.W > 24 {
			t.Errorf("panel %q is outside of the grid, which is 24 wide: %+v", panel.Title, at)
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

func TestMetricsReturnsMetricsOfOperatorInQuery(t *testing.T) {
	for expr, want := range map[string][]string{
		`absent(echo_operator_build_info)`:                                  {"echo_operator_build_info"},
		`sum by (go) (rate(rest_client_requests_total{job="a_b"}[5m])) > 2`: {"rest_client_requests_total"},
		`workqueue_depth and on (pod) leader_election_master_status == 1`:   {"workqueue_depth", "leader_election_master_status"},
		`label_values(process_cpu_seconds_total, pod)`:                      {"process_cpu_seconds_total"},
		`up{job="echo-operator-metrics"} or kube_echo_spec_replicas`:        nil,
	} {
		if got := Metrics(expr); !slices.Equal(got, want) {
			t.Errorf("Metrics(%q) = %v, want %v", expr, got, want)
		}
	}
}

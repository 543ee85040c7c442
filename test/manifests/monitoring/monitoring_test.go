package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// promtool runs promtool in a directory.
func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "promtool", args...)
	command.Dir = dir
	if output, err := command.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v. `make package-check` unpacks promtool.\n%s", strings.Join(args, " "), err, output)
	}
}

// alerts/<alert>.yaml has the promtool tests of each alert.
func TestEveryAlertFiresAndStaysSilentAsItsPromtoolTestsExpect(t *testing.T) {
	rules, err := RuleFile(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := Alerts(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "rules", "rules.yaml")
	for _, alert := range alerts {
		text := repo.Read(t, "alerts/"+alert.Alert+".yaml")
		if err := os.WriteFile(filepath.Join(dir, "test.yaml"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		promtool(t, dir, "test", "rules", "test.yaml")
		var file struct {
			Tests []struct {
				Cases []struct {
					Alert    string `json:"alertname"`
					Expected []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		if err := yaml.Unmarshal(text, &file); err != nil {
			t.Fatal(err)
		}
		fires, staysSilent := false, false
		for _, test := range file.Tests {
			firesHere := false
			for _, c := range test.Cases {
				firesHere = firesHere || c.Alert == alert.Alert && len(c.Expected) > 0
			}
			fires, staysSilent = fires || firesHere, staysSilent || !firesHere
		}
		if !fires || !staysSilent {
			t.Errorf("alerts/%s.yaml: has a firing test: %t, has one without an alert: %t; want both", alert.Alert, fires, staysSilent)
		}
	}
}

func TestEveryAlertHasSeverityTextsAndRunbook(t *testing.T) {
	const runbooks = "docs/runbooks.md"
	page := string(repo.Read(t, repo.Root+"/"+runbooks))
	alerts, err := Alerts(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alerts {
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("alert %s: severity is %q, want critical or warning", alert.Alert, severity)
		}
		if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
			t.Errorf("alert %s has no annotation summary or description", alert.Alert)
		}
		runbook := "https://github.com/kkloud-io/echo-operator/blob/main/" + runbooks + "#" + strings.ToLower(alert.Alert)
		if got := alert.Annotations["runbook_url"]; got != runbook {
			t.Errorf("alert %s: runbook_url is %q, want %q", alert.Alert, got, runbook)
		}
		if !strings.Contains(page, "\n## "+alert.Alert+"\n") {
			t.Errorf("%s has no section %s", runbooks, alert.Alert)
		}
	}
	if sections := strings.Count(page, "\n## "); sections != len(alerts) {
		t.Errorf("%s has %d sections, want one for each of the %d alerts", runbooks, sections, len(alerts))
	}
}

// promtool checks each query of the dashboard as the expression of a rule.
func TestQueriesOfTheDashboardAreValid(t *testing.T) {
	panels, err := Dashboard(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	var rules []map[string]string
	for _, panel := range panels {
		for _, target := range panel.Targets {
			expr := strings.NewReplacer("$namespace", ".*", "$__rate_interval", "5m").Replace(target.Expr)
			rules = append(rules, map[string]string{"record": fmt.Sprint("query", len(rules)), "expr": expr})
		}
	}
	file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "queries.yaml"), file, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, dir, "check", "rules", "queries.yaml")
}

func TestPodMonitorsSelectTheirPodsAndPorts(t *testing.T) {
	for _, test := range []struct {
		name     string
		monitor  func(root string) (PodMonitor, error)
		label    string
		verifier bool
		without  string // the port that is not scraped
	}{
		{"verifiers", VerifierMonitor, children.VerifiesLabel, true, ""},
		{"servers", ServerMonitor, children.EchoLabel, false, "kkloud-echo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			monitor, err := test.monitor(repo.Root)
			if err != nil {
				t.Fatal(err)
			}
			selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
			if err != nil {
				t.Fatal(err)
			}
			var scraped []string
			// The name that Prometheus gives the label of a pod.
			label := "__meta_kubernetes_pod_label_" + strings.NewReplacer(".", "_", "/", "_").Replace(test.label)
			for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
				scraped = append(scraped, endpoint.Port)
				if !slices.ContainsFunc(endpoint.Relabelings, func(r Relabeling) bool {
					return r.TargetLabel == "echo" && slices.Equal(r.SourceLabels, []string{label})
				}) {
					t.Errorf("port %s: the alerts use the label echo, which is not set from %s", endpoint.Port, label)
				}
			}
			echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "hello", Namespace: "default"}, Spec: echov1.EchoSpec{
				Message: "hello", Port: 80, Verify: &echov1.Verify{PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3},
				Route: &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "g"}}, Hostnames: []string{"h.example"}, Scheme: "https", Paths: []echov1.Path{{Value: "/"}}},
			}}
			for _, kind := range children.Kinds {
				deployment, ok := kind.New().(*appsv1.Deployment)
				if !ok {
					continue // The DaemonSet of verifiers has the same pod template as their Deployment.
				}
				kind.Mutate(deployment, echo, children.Inputs{ClusterIPs: []string{"10.0.0.1"}})
				isSelected := monitor.Spec.NamespaceSelector.Any && selector.Matches(labels.Set(deployment.Spec.Template.Labels))
				if isSelected != (kind.Verifier == test.verifier) {
					t.Errorf("the PodMonitor selects the pods of kind %s in any namespace: %t, want %t", kind.Name, isSelected, !isSelected)
				}
				var ports []string
				for _, container := range deployment.Spec.Template.Spec.Containers {
					for _, port := range container.Ports {
						if port.Name != test.without {
							ports = append(ports, port.Name)
						}
					}
				}
				if isSelected {
					repo.Same(t, "ports that the PodMonitor scrapes", scraped, ports)
				}
			}
		})
	}
}

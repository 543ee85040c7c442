package monitoring

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

func TestEveryAlertHasSeverityTextsRunbookAndTests(t *testing.T) {
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
		// promtool runs these tests.
		tests := strings.Split(string(repo.Read(t, "alerts/"+alert.Alert+".yaml")), "\n- name: ")[1:]
		fires := func(test string) bool {
			return strings.Contains(test, "alertname: "+alert.Alert+"\n") && strings.Contains(test, "exp_alerts:")
		}
		staysSilent := func(test string) bool { return !fires(test) }
		if !slices.ContainsFunc(tests, fires) || !slices.ContainsFunc(tests, staysSilent) {
			t.Errorf("alerts/%s.yaml must have a test in which the alert fires, and one in which it does not", alert.Alert)
		}
	}
	if sections := strings.Count(page, "\n## "); sections != len(alerts) {
		t.Errorf("%s has %d sections, want one for each of the %d alerts", runbooks, sections, len(alerts))
	}
}

func TestPodMonitorsSelectTheirPodsAndPorts(t *testing.T) {
	for _, test := range []struct {
		name     string
		file     string
		label    string
		verifier bool
		without  string // the port that is not scraped
	}{
		{"verifiers", VerifierMonitor, children.VerifiesLabel, true, ""},
		{"servers", ServerMonitor, children.EchoLabel, false, "kkloud-echo"},
	} {
		t.Run(test.name, func(t *testing.T) {
			monitor, err := ReadPodMonitor(repo.Root, test.file)
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

// Package monitoring reads the alerts, the dashboard, the ServiceMonitor and the PodMonitor in config/prometheus.
package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Files, relative to the root of the repository.
const (
	alertsFile         = "config/prometheus/alerts.yaml"
	dashboardFile      = "config/prometheus/dashboard.json"
	serviceMonitorFile = "config/prometheus/service_monitor.yaml"
	// VerifierMonitor has the PodMonitor of the verifiers.
	VerifierMonitor = "config/prometheus/pod_monitor.yaml"
	// ServerMonitor has the PodMonitor of the default servers.
	ServerMonitor = "config/prometheus/server_pod_monitor.yaml"
)

// Rule is one alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Panel is one panel of the dashboard.
type Panel struct {
	Title   string   `json:"title"`
	Targets []Target `json:"targets"`
}

// Target is one query of a panel.
type Target struct {
	Expr string `json:"expr"`
}

// RuleFile returns the alerts as a Prometheus rule file, without the Kubernetes object around them.
func RuleFile(root string) ([]byte, error) {
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := read(root, alertsFile, &object); err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(object.Spec)
}

// Alerts returns the alerts of every group.
func Alerts(root string) ([]Rule, error) {
	var object struct {
		Spec struct {
			Groups []struct {
				Rules []Rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := read(root, alertsFile, &object); err != nil {
		return nil, err
	}
	var rules []Rule
	for _, group := range object.Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules, nil
}

// Dashboard returns the panels of the dashboard, including rows.
func Dashboard(root string) ([]Panel, error) {
	var board struct {
		Panels []Panel `json:"panels"`
	}
	err := read(root, dashboardFile, &board)
	return board.Panels, err
}

// ServiceMonitor describes how Prometheus scrapes the operator.
type ServiceMonitor struct {
	Metadata struct {
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		Selector struct {
			MatchLabels map[string]string `json:"matchLabels"`
		} `json:"selector"`
		Endpoints []Endpoint `json:"endpoints"`
	} `json:"spec"`
}

// Endpoint is a port of a Service that Prometheus scrapes.
type Endpoint struct {
	Port            string `json:"port"`
	Path            string `json:"path"`
	Scheme          string `json:"scheme"`
	BearerTokenFile string `json:"bearerTokenFile"`
	TLSConfig       struct {
		InsecureSkipVerify bool `json:"insecureSkipVerify"`
	} `json:"tlsConfig"`
}

// Monitor returns the ServiceMonitor.
func Monitor(root string) (monitor ServiceMonitor, err error) {
	err = read(root, serviceMonitorFile, &monitor)
	if n := len(monitor.Spec.Endpoints); err == nil && n != 1 {
		return monitor, fmt.Errorf("%s has %d endpoints, want 1", serviceMonitorFile, n)
	}
	return monitor, err
}

// ScrapeConfig returns a Prometheus configuration that scrapes one static target with the settings of the
// ServiceMonitor. Prometheus adds the labels to the target's series.
func (m ServiceMonitor) ScrapeConfig(job, target string, labels map[string]string) ([]byte, error) {
	type object = map[string]any
	endpoint := m.Spec.Endpoints[0]
	return yaml.Marshal(object{"scrape_configs": []object{{
		"job_name":       job,
		"scheme":         endpoint.Scheme,
		"metrics_path":   endpoint.Path,
		"authorization":  object{"credentials_file": endpoint.BearerTokenFile},
		"tls_config":     object{"insecure_skip_verify": endpoint.TLSConfig.InsecureSkipVerify},
		"static_configs": []object{{"targets": []string{target}, "labels": labels}},
	}}})
}

// PodMonitor describes how Prometheus scrapes servers or verifiers.
type PodMonitor struct {
	Spec struct {
		NamespaceSelector struct {
			Any bool `json:"any"`
		} `json:"namespaceSelector"`
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []PodEndpoint        `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// PodEndpoint is a port of a pod that Prometheus scrapes.
type PodEndpoint struct {
	Port        string       `json:"port"`
	Path        string       `json:"path"`
	Relabelings []Relabeling `json:"relabelings"`
}

// Relabeling sets a label of the series from labels of the target.
type Relabeling struct {
	SourceLabels []string `json:"sourceLabels"`
	TargetLabel  string   `json:"targetLabel"`
}

// ReadPodMonitor returns the PodMonitor in a file.
func ReadPodMonitor(root, file string) (monitor PodMonitor, err error) {
	err = read(root, file, &monitor)
	return monitor, err
}

// ScrapeConfigs returns jobs of a Prometheus configuration, each of which scrapes one port of the host with
// the settings of the PodMonitor. Prometheus adds the labels to the targets' series.
func (m PodMonitor) ScrapeConfigs(host string, ports map[string]int32, labels map[string]string) ([]byte, error) {
	type object = map[string]any
	var jobs []object
	for _, endpoint := range m.Spec.PodMetricsEndpoints {
		if port, found := ports[endpoint.Port]; found {
			jobs = append(jobs, object{
				"job_name":       endpoint.Port,
				"metrics_path":   endpoint.Path,
				"static_configs": []object{{"targets": []string{fmt.Sprintf("%s:%d", host, port)}, "labels": labels}},
			})
		}
	}
	return yaml.Marshal(jobs)
}

func read(root, file string, into any) error {
	text, err := os.ReadFile(filepath.Join(root, file)) // #nosec G304 -- a file of this repository
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// metric matches the metrics of the operator and its verifiers. Prometheus itself creates other metrics, such as up.
var metric = regexp.MustCompile(`\b(echo_operator|echo_verify|echo_server|controller_runtime|workqueue|rest_client|leader_election|process|go)_\w+`)

// Names returns every metric that an alert or the dashboard queries.
func Names(root string) ([]string, error) {
	alerts, err := Alerts(root)
	if err != nil {
		return nil, err
	}
	panels, err := Dashboard(root)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, alert := range alerts {
		names = append(names, metric.FindAllString(alert.Expr, -1)...)
	}
	for _, panel := range panels {
		for _, target := range panel.Targets {
			names = append(names, metric.FindAllString(target.Expr, -1)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

//go:build e2e

package olmv0

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
	"github.com/kkloud-io/echo-operator/test/manifests/monitoring"
)

const monitoringNamespace = "monitoring-e2e"

// minute is the duration of an alert rule's minute in these tests. With 8 s, an installation or a
// restart of the operator still takes less than the five minutes after which an alert fires.
const minute = 8 * time.Second

var _ = Describe("Prometheus", Label("monitoring", "slow"), Serial, Ordered, func() {
	var i *installation

	BeforeAll(func() {
		startPrometheus()
		i = installAlone("echo-operator", "fixed", catalog().Tree)
		Eventually(query).WithArguments(`up{job="echo-operator-metrics"} == 1`).ShouldNot(BeEmpty())
		NewNamespace(load)
		Apply(load, verifierService)
		CreateEcho(load, "verified", echov1.EchoSpec{Message: "hello", Verify: &echov1.Verify{PeriodSeconds: 1, TimeoutSeconds: 1}})
		Kubectl("-n", load, "wait", "--for=condition=Verified", "echo/verified", "--timeout=120s")
		Eventually(query).WithArguments(`echo_verify_last_success_timestamp_seconds{echo="verified"} > 0`).Should(HaveLen(2), "verified layers")
	})

	It("fires no alert while the operator is installed, reconciles, restarts and is upgraded", func() {
		for n := range 10 {
			CreateEcho(load, fmt.Sprint("e", n), echov1.EchoSpec{Message: "not hello"})
		}
		WaitSettled(load)
		Kubectl("-n", load, "scale", "deployment/echo-e0", "--replicas=3")
		Eventually(query).WithArguments(`echo_operator_drift_corrections_total >= 1`).ShouldNot(BeEmpty())
		Kubectl("-n", operatorNamespace, "delete", "pod", "-l", "control-plane=controller-manager")
		Kubectl("-n", operatorNamespace, "rollout", "status", operator, "--timeout=60s")
		i.upgrade(catalog().Fixed)
		time.Sleep(7 * minute)
		Expect(query(`count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[1h]))`)).To(BeEmpty(), "alerts that fired")
	})

	It("has every metric that the alerts and the dashboard query, and answers the queries of the dashboard", func() {
		names, err := monitoring.Names(root)
		Expect(err).NotTo(HaveOccurred())
		// This metric has values only after a conflict.
		Kubectl("-n", load, "create", "service", "clusterip", "echo-conflict", "--tcp=80")
		CreateEcho(load, "conflict", echov1.EchoSpec{Message: "hello"})
		Eventually(func(g Gomega) {
			var series struct{ Data []string }
			g.Expect(json.Unmarshal([]byte(get("label/__name__/values", nil)), &series)).To(Succeed())
			g.Expect(series.Data).To(ContainElements(names))
		}).Should(Succeed())
		panels, err := monitoring.Dashboard(root)
		Expect(err).NotTo(HaveOccurred())
		variables := strings.NewReplacer("$namespace", ".*", "$__rate_interval", "20s")
		for _, panel := range panels {
			for _, target := range panel.Targets {
				query(variables.Replace(target.Expr)) // Fails if Prometheus rejects the query.
			}
		}
	})

	It("fires EchoConflict and EchoNotVerified until their causes are removed", func() {
		pods, err := Pods(load, "kkloud.io/echo=e0")
		Expect(err).NotTo(HaveOccurred())
		remove := workload.AddWrongEndpoint(load, "verified", pods[0].Status.PodIP)
		// The Echo in conflict is not ready, either.
		Eventually(firing, 25*minute).Should(ContainElements("EchoConflict", "EchoNotVerified"))
		Kubectl("-n", load, "delete", "service", "echo-conflict")
		remove()
		Eventually(firing, 25*minute).Should(BeEmpty())
	})

	It("fires EchoOperatorReconcileErrors until the operator has its write permissions again", func() {
		StopOLM()
		var roles rbacv1.ClusterRoleList
		Expect(Client().List(context.Background(), &roles, client.MatchingLabels{"olm.owner.namespace": operatorNamespace})).To(Succeed())
		writes := func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "deployments") || slices.Contains(rule.Resources, "echoes/status")
		}
		n := slices.IndexFunc(roles.Items, func(role rbacv1.ClusterRole) bool { return slices.ContainsFunc(role.Rules, writes) })
		Expect(n).NotTo(Equal(-1), "index of the ClusterRole with permissions for Deployments")
		role := &roles.Items[n]
		rules := slices.Clone(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, writes)
		Expect(Client().Update(context.Background(), role)).To(Succeed())
		for n := range 10 {
			PatchEcho(load, fmt.Sprint("e", n), `{"message":"changed"}`)
		}
		Eventually(firing, 25*minute).Should(ContainElement("EchoOperatorReconcileErrors"))
		role.Rules = rules
		Expect(Client().Update(context.Background(), role)).To(Succeed())
		Eventually(firing, 25*minute).Should(BeEmpty())
	})

	It("fires EchoOperatorAbsent while the operator is not running", func() {
		StopOLM()
		Kubectl("-n", operatorNamespace, "scale", operator, "--replicas=0")
		Eventually(firing, 25*minute).Should(ConsistOf("EchoOperatorAbsent"))
		Kubectl("-n", operatorNamespace, "scale", operator, "--replicas=1")
		Eventually(firing, 25*minute).Should(BeEmpty())
	})
})

// load is the namespace of the Echoes.
const load = "load-e2e"

// verifierService gives the verifier of the Echo "verified" a name.
const verifierService = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "verifier"}, "spec": {
	"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"kkloud.io/verifies": "verified"}, "ports": [{"port": 8082}]}}`

// verifierJobs returns jobs that scrape the verifier of the Echo "verified", as the PodMonitor does.
func verifierJobs() []byte {
	GinkgoHelper()
	monitor, err := monitoring.ReadPodMonitor(root, monitoring.VerifierMonitor)
	Expect(err).NotTo(HaveOccurred())
	jobs, err := monitor.ScrapeConfigs("verifier."+load+".svc", map[string]int32{"verify-dns": 8081, "verify-service": 8082},
		map[string]string{"namespace": load, "echo": "verified", "node": "local-cluster"})
	Expect(err).NotTo(HaveOccurred())
	return jobs
}

// prometheusAPI is the path of Prometheus' API on the API server's proxy.
const prometheusAPI = "/api/v1/namespaces/" + monitoringNamespace + "/services/prometheus:9090/proxy/api/v1"

// startPrometheus starts Prometheus with the alerts and the scrape configuration of
// config/prometheus, with shorter minutes.
func startPrometheus() {
	GinkgoHelper()
	rules, err := monitoring.RuleFile(root)
	Expect(err).NotTo(HaveOccurred())
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [/etc/prometheus/rules.yaml]\n" +
		string(scrapeConfig()) + string(verifierJobs())
	configMap, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "prometheus"},
		"data": map[string]string{"prometheus.yaml": config, "rules.yaml": shorten(string(rules))}})
	Expect(err).NotTo(HaveOccurred())

	NewNamespace(monitoringNamespace)
	Kubectl("label", "namespace", monitoringNamespace, "metrics=enabled")
	DeferCleanup(func() { Kubectl("delete", "clusterrolebinding", "monitoring-e2e", "--ignore-not-found") })
	Apply(monitoringNamespace, string(configMap))
	Kubectl("apply", "-f", root+"/test/e2e/prometheus/prometheus.yaml")
	Kubectl("-n", monitoringNamespace, "rollout", "status", "deployment/prometheus", "--timeout=60s")
}

// scrapeConfig returns the scrape configuration that the Prometheus operator would generate from the
// ServiceMonitor, with the Service as its target: Debian builds Prometheus without Kubernetes
// service discovery.
func scrapeConfig() []byte {
	GinkgoHelper()
	monitor, err := monitoring.Monitor(root)
	Expect(err).NotTo(HaveOccurred())
	manifest, err := os.ReadFile(root + "/bundle/manifests/echo-operator-metrics_v1_service.yaml")
	Expect(err).NotTo(HaveOccurred())
	var service corev1.Service
	Expect(yaml.UnmarshalStrict(manifest, &service)).To(Succeed())
	selector := labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels)
	Expect(selector.Matches(labels.Set(service.Labels))).To(BeTrue(), "the ServiceMonitor selects the Service")
	namespace, endpoint := monitor.Metadata.Namespace, monitor.Spec.Endpoints[0]
	port := slices.IndexFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.Name == endpoint.Port })
	Expect(port).NotTo(Equal(-1), "index of port %s in the Service", endpoint.Port)
	config, err := monitor.ScrapeConfig(service.Name, fmt.Sprintf("%s.%s.svc:%d", service.Name, namespace, service.Spec.Ports[port].Port),
		map[string]string{"namespace": namespace, "service": service.Name, "endpoint": endpoint.Port, "pod": service.Name})
	Expect(err).NotTo(HaveOccurred())
	return config
}

var minutes = regexp.MustCompile(`\b(\d+)m\b`)

// shorten shortens the minutes in alert rules.
func shorten(rules string) string {
	rules = minutes.ReplaceAllStringFunc(rules, func(match string) string {
		n, err := strconv.Atoi(strings.TrimSuffix(match, "m"))
		Expect(err).NotTo(HaveOccurred())
		return strconv.Itoa(int((time.Duration(n) * minute).Seconds())) + "s"
	})
	return strings.ReplaceAll(rules, "* 60", fmt.Sprint("* ", minute.Seconds()))
}

// query returns the labels of each present result of an expression.
func query(expression string) (results []map[string]string) {
	GinkgoHelper()
	var response struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	Expect(json.Unmarshal([]byte(get("query", url.Values{"query": {expression}})), &response)).To(Succeed())
	for _, result := range response.Data.Result {
		results = append(results, result.Metric)
	}
	return results
}

// get requests a path of Prometheus' API.
func get(path string, parameters url.Values) string {
	GinkgoHelper()
	response, text, err := Raw(prometheusAPI + "/" + path + "?" + parameters.Encode())
	Expect(err).NotTo(HaveOccurred())
	Expect(response.StatusCode).To(Equal(http.StatusOK), text)
	return text
}

// firing returns the names of the firing alerts.
func firing() (alerts []string) {
	GinkgoHelper()
	for _, labels := range query(`ALERTS{alertstate="firing"}`) {
		alerts = append(alerts, labels["alertname"])
	}
	return alerts
}

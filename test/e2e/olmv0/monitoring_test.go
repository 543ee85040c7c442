//go:build e2e

package olmv0

import (
	"encoding/json"
	"fmt"
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
	"sigs.k8s.io/yaml"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
	"github.com/kkloud-io/echo-operator/test/manifests/monitoring"
)

const monitoringNamespace = "monitoring-e2e"

// minute is the duration of an alert rule's minute in these tests. With 8 s, an installation or a
// restart of the operator still takes less than the five minutes after which an alert fires.
const minute = 8 * time.Second

var _ = Describe("Prometheus", Label("monitoring"), Ordered, func() {
	BeforeAll(func() {
		_, tree, _, _ := newest()
		serveCatalog(image + "fixed")
		startPrometheus()
		subscribe("test", tree)
		awaitSucceeded(tree)
		Eventually(query).WithArguments(`up{job="echo-operator-metrics"}`).Should(ConsistOf(HaveField("Value", 1.0)))
		NewNamespace(load)
		Apply(load, verifierService)
		Apply(load, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "verified"}, "spec": {"message": "hello", "verify": {"periodSeconds": 1, "timeoutSeconds": 1}}}`)
		Kubectl("-n", load, "wait", "--for=condition=Verified", "echo/verified", "--timeout=120s")
		Eventually(query).WithArguments(`min(echo_verify_last_success_timestamp_seconds{echo="verified"})`).Should(ConsistOf(HaveField("Value", BeNumerically(">", 0))))
	})

	AfterAll(func() {
		if GinkgoT().Failed() {
			return
		}
		AddReportEntry("\n| event | alerts that fired |\n|---|---|\n" + strings.Join(alertTable, "\n"))
	})

	It("fires no alert while the operator is installed, reconciles, restarts and is upgraded", func() {
		for i := range 10 {
			Apply(load, fmt.Sprintf(`{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "e%d"}, "spec": {"message": "hello"}}`, i))
		}
		Kubectl("-n", load, "wait", "--for=condition=Ready", "echoes", "--all", "--timeout=120s")
		Kubectl("-n", load, "scale", "deployment/echo-e0", "--replicas=3")
		Eventually(query).WithArguments(`sum(echo_operator_drift_corrections_total)`).Should(ConsistOf(HaveField("Value", BeNumerically(">=", 1))))
		recordAlerts("installation and ten Echoes")

		Kubectl("-n", operatorNamespace, "delete", "pod", "-l", "control-plane=controller-manager")
		Kubectl("-n", operatorNamespace, "rollout", "status", operator, "--timeout=60s")
		Consistently(firing, 7*minute).Should(BeEmpty())
		recordAlerts("restart")

		_, _, _, last := newest()
		approve(last)
		awaitSucceeded(last)
		Consistently(firing, 7*minute).Should(BeEmpty())
		recordAlerts("upgrade")
		Expect(alertTable).To(HaveEach(HaveSuffix("| none |")))
	})

	It("fires EchoConflict until the object that the Echo does not control is deleted", func() {
		Kubectl("-n", load, "create", "service", "clusterip", "echo-conflict", "--tcp=80")
		Apply(load, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "conflict"}, "spec": {"message": "hello"}}`)
		Eventually(firing, 25*minute).Should(ConsistOf("EchoConflict"))
		recordAlerts("conflict")
		Kubectl("-n", load, "delete", "service", "echo-conflict")
		Kubectl("-n", load, "wait", "--for=condition=Ready", "echo/conflict", "--timeout=90s")
		awaitNoAlerts()
	})

	It("fires EchoNotVerified until the Service has only the endpoints of the Echo", func() {
		Apply(load, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "other"}, "spec": {"message": "other"}}`)
		WaitReady(load, "other")
		remove := workload.AddWrongEndpoint(load, "verified", Kubectl("-n", load, "get", "pods", "-l", "kkloud.io/echo=other", "-o", "jsonpath={.items[0].status.podIP}"))
		Eventually(firing, 25*minute).Should(ConsistOf("EchoNotVerified"))
		recordAlerts("wrong endpoint")
		remove()
		Kubectl("-n", load, "wait", "--for=condition=Verified", "echo/verified", "--timeout=90s")
		awaitNoAlerts()
	})

	It("has every metric that the alerts and the dashboard query", func() {
		names, err := monitoring.Names(root)
		Expect(err).NotTo(HaveOccurred())
		var series struct{ Data []string }
		Expect(json.Unmarshal([]byte(get("label/__name__/values", nil)), &series)).To(Succeed())
		Expect(series.Data).To(ContainElements(names))
	})

	It("fires EchoOperatorReconcileErrors until the operator has its write permissions again", func() {
		StopOLM()
		role, rules := writerRole()
		setRules(role, slices.DeleteFunc(slices.Clone(rules), func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.Resources, "deployments") || slices.Contains(rule.Resources, "echoes/status")
		}))
		for i := range 10 {
			Kubectl("-n", load, "patch", "echo", fmt.Sprint("e", i), "--type=merge", "-p", `{"spec":{"message":"changed"}}`)
		}
		Eventually(firing, 25*minute).Should(ContainElement("EchoOperatorReconcileErrors"))
		recordAlerts("missing permissions")
		setRules(role, rules)
		Kubectl("-n", load, "wait", "--for=condition=Ready", "echoes", "--all", "--timeout=120s")
		awaitNoAlerts()
	})

	It("fires EchoOperatorAbsent while the operator is not running", func() {
		StopOLM()
		Kubectl("-n", operatorNamespace, "scale", operator, "--replicas=0")
		Eventually(firing, 25*minute).Should(ConsistOf("EchoOperatorAbsent"))
		recordAlerts("operator not running")
		Kubectl("-n", operatorNamespace, "scale", operator, "--replicas=1")
		awaitNoAlerts()
	})

	It("answers every query of the dashboard", func() {
		panels, err := monitoring.Dashboard(root)
		Expect(err).NotTo(HaveOccurred())
		variables := strings.NewReplacer("$namespace", ".*", "$__rate_interval", "20s")
		for _, panel := range panels {
			for _, target := range panel.Targets {
				query(variables.Replace(target.Expr)) // Fails if Prometheus rejects the query.
			}
		}
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
	monitor, err := monitoring.VerifierMonitor(root)
	Expect(err).NotTo(HaveOccurred())
	jobs, err := monitor.ScrapeConfigs("verifier."+load+".svc", map[string]int32{"verify-dns": 8081, "verify-service": 8082},
		map[string]string{"namespace": load, "echo": "verified", "node": "local-cluster"})
	Expect(err).NotTo(HaveOccurred())
	return jobs
}

// writerRole returns the ClusterRole with the permissions to write children.
func writerRole() (name string, rules []rbacv1.PolicyRule) {
	GinkgoHelper()
	var roles rbacv1.ClusterRoleList
	output := Kubectl("get", "clusterroles", "-l", "olm.owner.namespace="+operatorNamespace, "-o", "json")
	Expect(json.Unmarshal([]byte(output), &roles)).To(Succeed())
	for _, role := range roles.Items {
		for _, rule := range role.Rules {
			if slices.Contains(rule.Resources, "deployments") {
				return role.Name, role.Rules
			}
		}
	}
	Fail("no ClusterRole of the operator has permissions for Deployments")
	return "", nil
}

func setRules(role string, rules []rbacv1.PolicyRule) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"rules": rules})
	Expect(err).NotTo(HaveOccurred())
	Kubectl("patch", "clusterrole", role, "--type=merge", "-p", string(patch))
}

// prometheusAPI is the path of Prometheus' API on the API server's proxy.
const prometheusAPI = "/api/v1/namespaces/" + monitoringNamespace + "/services/prometheus:9090/proxy/api/v1"

// startPrometheus starts Prometheus with the alerts and the scrape configuration of
// config/prometheus, with shorter minutes.
func startPrometheus() {
	GinkgoHelper()
	rules, err := monitoring.RuleFile(root)
	Expect(err).NotTo(HaveOccurred())
	scrape := scrapeConfig()
	config := "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [/etc/prometheus/rules.yaml]\n" +
		string(scrape) + string(verifierJobs())
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
	Expect(labels.SelectorFromSet(monitor.Spec.Selector.MatchLabels).Matches(labels.Set(service.Labels))).To(BeTrue(), "the ServiceMonitor selects the Service")
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

// sample is one value of a query's result, with its labels.
type sample struct {
	Labels map[string]string
	Value  float64
}

// query returns the present result of an expression.
func query(expression string) []sample {
	GinkgoHelper()
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	Expect(json.Unmarshal([]byte(get("query", url.Values{"query": {expression}})), &answer)).To(Succeed())
	var samples []sample
	for _, result := range answer.Data.Result {
		value, err := strconv.ParseFloat(result.Value[1].(string), 64)
		Expect(err).NotTo(HaveOccurred())
		samples = append(samples, sample{Labels: result.Metric, Value: value})
	}
	return samples
}

// get requests a path of Prometheus' API.
func get(path string, parameters url.Values) string {
	GinkgoHelper()
	return Kubectl("get", "--raw", prometheusAPI+"/"+path+"?"+parameters.Encode())
}

// firing returns the names of the firing alerts.
func firing() (alerts []string) {
	GinkgoHelper()
	for _, s := range query(`ALERTS{alertstate="firing"}`) {
		alerts = append(alerts, s.Labels["alertname"])
	}
	return alerts
}

// awaitNoAlerts waits until no alert is firing.
func awaitNoAlerts() {
	GinkgoHelper()
	Eventually(firing, 25*minute).Should(BeEmpty())
	lastRecord = time.Now().Add(time.Second)
}

// alertTable lists the alerts that fired during each event.
var alertTable []string

// lastRecord is the time of the last call of recordAlerts or awaitNoAlerts.
var lastRecord = time.Now()

// recordAlerts adds the alerts that fired since lastRecord to the table.
func recordAlerts(event string) {
	GinkgoHelper()
	names := "none"
	window := int(time.Since(lastRecord).Seconds()) + 1
	for i, s := range query(fmt.Sprintf(`count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[%ds]))`, window)) {
		if i == 0 {
			names = ""
		}
		names += s.Labels["alertname"] + " "
	}
	lastRecord = time.Now()
	alertTable = append(alertTable, fmt.Sprintf("| %s | %s |", event, strings.TrimSpace(names)))
}

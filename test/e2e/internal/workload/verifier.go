package workload

import (
	"fmt"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// AddWrongEndpoint gives the Service of an Echo one more endpoint: the server of another Echo with the
// given IP address. The function that it returns removes the endpoint.
func AddWrongEndpoint(namespace, echo, ip string) (remove func()) {
	ginkgo.GinkgoHelper()
	cluster.Apply(namespace, fmt.Sprintf(`{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": {"name": "elsewhere", "labels": {"kubernetes.io/service-name": "echo-%s"}},
		"ports": [{"name": "http", "port": 5678}], "endpoints": [{"addresses": [%q]}]}`, echo, ip))
	return func() { cluster.Kubectl("-n", namespace, "delete", "endpointslice", "elsewhere") }
}

// Rounds returns how many rounds the running verifiers that the label selector matches have made, by
// "layer/result".
func Rounds(namespace, selector string) map[string]int {
	ginkgo.GinkgoHelper()
	pods, err := cluster.Pods(namespace, selector)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	rounds := map[string]int{}
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				addRounds(rounds, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", namespace, pod.Name, port.ContainerPort))
			}
		}
	}
	return rounds
}

func addRounds(rounds map[string]int, path string) {
	ginkgo.GinkgoHelper()
	_, text, err := cluster.Raw(path)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), text)
	for _, metric := range families["echo_verify_rounds_total"].GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.Label {
			labels[label.GetName()] = label.GetValue()
		}
		rounds[labels["layer"]+"/"+labels["result"]] += int(metric.GetCounter().GetValue())
	}
}

// NotVerified returns the rounds whose result is not the declared response, except those that timed out: on a busy node,
// a single round may.
func NotVerified(rounds map[string]int) map[string]int {
	failed := map[string]int{}
	for key, count := range rounds {
		if count > 0 && !strings.HasSuffix(key, "/ok") && !strings.HasSuffix(key, "/timeout") {
			failed[key] = count
		}
	}
	return failed
}

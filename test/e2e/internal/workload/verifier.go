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
	pods := cluster.Kubectl("-n", namespace, "get", "pods", "-l", selector, "-o",
		`jsonpath={range .items[*]}{range .spec.containers[*].ports[*]}{.containerPort}{" "}{end}{.metadata.name}{"\n"}{end}`)
	rounds := map[string]int{}
	for line := range strings.Lines(pods) {
		fields := strings.Fields(line)
		pod := fields[len(fields)-1]
		for _, port := range fields[:len(fields)-1] {
			text := cluster.Kubectl("get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+pod+":"+port+"/proxy/metrics")
			parser := expfmt.NewTextParser(model.UTF8Validation)
			families, err := parser.TextToMetricFamilies(strings.NewReader(text))
			gomega.Expect(err).NotTo(gomega.HaveOccurred(), text)
			for _, metric := range families["echo_verify_requests_total"].GetMetric() {
				labels := map[string]string{}
				for _, label := range metric.Label {
					labels[label.GetName()] = label.GetValue()
				}
				rounds[labels["layer"]+"/"+labels["result"]] += int(metric.GetCounter().GetValue())
			}
		}
	}
	return rounds
}

// NotVerified returns the rounds whose result is not the declared answer.
func NotVerified(rounds map[string]int) map[string]int {
	failed := map[string]int{}
	for key, count := range rounds {
		if count > 0 && !strings.HasSuffix(key, "/ok") {
			failed[key] = count
		}
	}
	return failed
}

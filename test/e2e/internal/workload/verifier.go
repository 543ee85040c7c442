package workload

import (
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// Rounds returns how many rounds the running verifiers of an Echo have made, by "layer/result".
func Rounds(namespace, echo string) map[string]int {
	ginkgo.GinkgoHelper()
	pods := cluster.Kubectl("-n", namespace, "get", "pods", "-l", "kkloud.io/verifies="+echo, "-o",
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

package workload

import (
	"cmp"
	"encoding/json"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// Requests are the counts of a prober.
type Requests struct {
	Sent, Failed int
	// Answers counts the successful requests by the text that the answer contained.
	Answers map[string]int
	// Failures describes the first failed requests.
	Failures []string
}

// StartProber starts a pod that requests each URL twenty times a second. A target is a URL, an
// equals sign, and the texts of which each answer must contain one.
func StartProber(namespace, name string, targets ...string) {
	ginkgo.GinkgoHelper()
	args, err := json.Marshal(targets)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	image := cmp.Or(os.Getenv("PROBER_IMG"), "ghcr.io/kkloud-io/echo-operator-prober:test")
	cluster.Apply(namespace, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "`+name+`"}, "spec": {
		"containers": [{"name": "prober", "image": "`+image+`", "args": `+string(args)+`,
			"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
		"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
		"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false}}`)
	cluster.Kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
}

// RequestsOf returns the present counts of a prober.
func RequestsOf(namespace, name string) Requests {
	ginkgo.GinkgoHelper()
	var requests Requests
	output := cluster.Kubectl("get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+name+":8080/proxy/")
	gomega.Expect(json.Unmarshal([]byte(output), &requests)).To(gomega.Succeed(), output)
	return requests
}

// Since returns the difference to earlier counts. Failures contains all that the prober kept.
func (r Requests) Since(before Requests) Requests {
	answers := map[string]int{}
	for text, count := range r.Answers {
		if count > before.Answers[text] {
			answers[text] = count - before.Answers[text]
		}
	}
	return Requests{Sent: r.Sent - before.Sent, Failed: r.Failed - before.Failed, Answers: answers, Failures: r.Failures}
}

package users

import (
	"cmp"
	"encoding/json"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// Calls is what a caller has counted.
type Calls struct {
	Sent, Failed int
	// Answers counts the calls that did not fail, by the text that was found in the answer.
	Answers map[string]int
	// Failures are the first calls that failed, in words.
	Failures []string
}

// StartCaller runs a pod that calls each URL twenty times a second, and expects in every
// answer one of the texts that follow the equals sign.
func StartCaller(namespace, name string, targets ...string) {
	ginkgo.GinkgoHelper()
	args, err := json.Marshal(targets)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	image := cmp.Or(os.Getenv("PROBER_IMG"), "ghcr.io/kkloud-io/echo-operator-prober:test")
	cluster.Apply(namespace, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "`+name+`"}, "spec": {
		"containers": [{"name": "caller", "image": "`+image+`", "args": `+string(args)+`,
			"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}],
		"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
		"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false}}`)
	cluster.Kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
}

// CallsOf returns what the caller has counted so far.
func CallsOf(namespace, name string) Calls {
	ginkgo.GinkgoHelper()
	var calls Calls
	output := cluster.Kubectl("get", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+name+":8080/proxy/")
	gomega.Expect(json.Unmarshal([]byte(output), &calls)).To(gomega.Succeed(), output)
	return calls
}

// Since returns what was counted after an earlier look. The failures are all that are kept.
func (c Calls) Since(before Calls) Calls {
	answers := map[string]int{}
	for text, count := range c.Answers {
		if count > before.Answers[text] {
			answers[text] = count - before.Answers[text]
		}
	}
	return Calls{Sent: c.Sent - before.Sent, Failed: c.Failed - before.Failed, Answers: answers, Failures: c.Failures}
}

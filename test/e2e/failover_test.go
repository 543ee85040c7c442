//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

const operatorDeployment = "deployment/echo-operator-controller-manager"

// failover stops or kills the leader, and measures the time until the next one leads and writes.
// It runs after the steady state, because an operator that starts lists the whole cluster.
func failover() {
	const namespace = "recovery-e2e"
	var table []string

	BeforeAll(func() {
		newNamespace(namespace)
		apply(namespace, echoManifest("hello", map[string]any{"message": "first", "replicas": 2}))
		waitSettled(namespace)
		workload.StartProber(namespace, "prober", "http://echo-hello."+namespace+".svc/=first|second")
	})
	AfterAll(func() {
		AddReportEntry("\n| the leader is | the next one leads after | and writes after | requests | failed |\n|---|---|---|---|---|\n" + strings.Join(table, "\n"))
	})

	DescribeTable("is replaced within the limit, and no request fails", func(replicas int, end func(pod string), message string, limit time.Duration) {
		scaleOperator(replicas)
		before := workload.RequestsOf(namespace, "prober")
		old := leader()
		pod, _, _ := strings.Cut(old, "_")
		start := time.Now()
		end(pod)
		Eventually(leader, limit, "100ms").ShouldNot(Or(Equal(old), BeEmpty()))
		leads := time.Since(start)
		kubectl("-n", namespace, "patch", "echo", "hello", "--type=merge", "-p", `{"spec":{"message":"`+message+`"}}`)
		Eventually(func() string {
			return kubectl("-n", namespace, "get", "deployment", "echo-hello", "-o", "jsonpath={.spec.template.spec.containers[0].args}")
		}, limit-leads, "100ms").Should(ContainSubstring(message))
		writes := time.Since(start)
		waitSettled(namespace)
		requests := workload.RequestsOf(namespace, "prober").Since(before)
		table = append(table, fmt.Sprintf("| %s | %.1f s | %.1f s | %d | %d |",
			CurrentSpecReport().LeafNodeText, leads.Seconds(), writes.Seconds(), requests.Sent, requests.Failed))
		Expect(requests.Failed).To(BeZero(), "failed requests:\n%s", strings.Join(requests.Failures, "\n"))
	},
		Entry("when the only replica is stopped", sampled, 1, stop, "second", 10*time.Second),
		Entry("when the only replica is killed", sampled, 1, kill, "first", 25*time.Second),
		Entry("when one of two replicas is stopped", sampled, 2, stop, "second", 10*time.Second),
		Entry("when one of two replicas is killed", 2, kill, "first", 25*time.Second),
	)
}

// scaleOperator makes OLM run that many replicas of the operator.
func scaleOperator(replicas int) {
	GinkgoHelper()
	csv := kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installedCSV}")
	kubectl("-n", operatorNamespace, "patch", "csv", csv, "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/spec/install/spec/deployments/0/spec/replicas","value":%d}]`, replicas))
	kubectl("-n", operatorNamespace, "wait", operatorDeployment, "--timeout=60s", fmt.Sprint("--for=jsonpath={.status.availableReplicas}=", replicas))
}

// leader returns the identity of the leader: its pod's name, an underscore, and a UUID.
func leader() string {
	GinkgoHelper()
	return kubectl("-n", operatorNamespace, "get", "lease", "echo-operator.kkloud.io", "-o", "jsonpath={.spec.holderIdentity}")
}

// stop ends the operator's process by SIGTERM.
func stop(pod string) {
	GinkgoHelper()
	kubectl("-n", operatorNamespace, "delete", "pod", pod, "--wait=false")
}

// kill ends the operator's process by SIGKILL, from the node.
func kill(pod string) {
	GinkgoHelper()
	requireLocalCluster("killing a process needs access to the node")
	id := kubectl("-n", operatorNamespace, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	id = strings.TrimPrefix(id, "containerd://")
	Expect(id).NotTo(BeEmpty())
	output, err := exec.Command("../../bin/local-cluster", "exec", "--", "/bin/sh", "-c",
		`for p in $(grep -l `+id+` /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3); do [ "$(readlink /proc/$p/exe)" = /manager ] && kill -KILL $p && echo killed; done`).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	Expect(string(output)).To(Equal("killed\n"))
}

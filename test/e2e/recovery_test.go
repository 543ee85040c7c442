//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/users"
)

const operatorDeployment = "deployment/echo-operator-controller-manager"

// recovery ends the operator that leads, and measures how long it takes until another acts.
// It comes after the quiet time, as an operator that starts reads the whole cluster.
func recovery() {
	const namespace = "recovery-e2e"
	var table []string

	BeforeAll(func() {
		newNamespace(namespace)
		apply(namespace, echoManifest("hello", map[string]any{"message": "first", "replicas": 2}))
		settle(namespace)
		users.StartCaller(namespace, "caller", "http://echo-hello."+namespace+".svc/=first|second")
	})
	AfterAll(func() {
		AddReportEntry("\n| the leader is | another leads after | and acts after | requests | failed |\n|---|---|---|---|---|\n" + strings.Join(table, "\n"))
	})

	DescribeTable("soon, and no request is lost", func(replicas int, end func(pod string), message string, limit time.Duration) {
		scaleOperator(replicas)
		before := users.CallsOf(namespace, "caller")
		gone := leader()
		pod, _, _ := strings.Cut(gone, "_")
		start := time.Now()
		end(pod)
		Eventually(leader, limit, "100ms").ShouldNot(Or(Equal(gone), BeEmpty()))
		leads := time.Since(start)
		kubectl("-n", namespace, "patch", "echo", "hello", "--type=merge", "-p", `{"spec":{"message":"`+message+`"}}`)
		Eventually(func() string {
			return kubectl("-n", namespace, "get", "deployment", "echo-hello", "-o", "jsonpath={.spec.template.spec.containers[0].args}")
		}, limit-leads, "100ms").Should(ContainSubstring(message))
		acts := time.Since(start)
		settle(namespace)
		calls := users.CallsOf(namespace, "caller").Since(before)
		table = append(table, fmt.Sprintf("| %s | %.1f s | %.1f s | %d | %d |",
			CurrentSpecReport().LeafNodeText, leads.Seconds(), acts.Seconds(), calls.Sent, calls.Failed))
		Expect(calls.Failed).To(BeZero(), strings.Join(calls.Failures, "\n"))
	},
		Entry("stopped, the only one", 1, stop, "second", 10*time.Second),
		Entry("killed, the only one", 1, kill, "first", 25*time.Second),
		Entry("stopped, one of two", 2, stop, "second", 10*time.Second),
		Entry("killed, one of two", 2, kill, "first", 25*time.Second),
	)
}

// scaleOperator has OLM run that many replicas of the operator.
func scaleOperator(replicas int) {
	GinkgoHelper()
	csv := kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installedCSV}")
	kubectl("-n", operatorNamespace, "patch", "csv", csv, "--type=json", "-p",
		fmt.Sprintf(`[{"op":"replace","path":"/spec/install/spec/deployments/0/spec/replicas","value":%d}]`, replicas))
	kubectl("-n", operatorNamespace, "wait", operatorDeployment, "--timeout=60s", fmt.Sprint("--for=jsonpath={.status.availableReplicas}=", replicas))
}

// leader tells which process leads: its pod's name, an underscore, and an identity of its own.
func leader() string {
	GinkgoHelper()
	return kubectl("-n", operatorNamespace, "get", "lease", "echo-operator.kkloud.io", "-o", "jsonpath={.spec.holderIdentity}")
}

// stop has the operator's process ended by SIGTERM.
func stop(pod string) {
	GinkgoHelper()
	kubectl("-n", operatorNamespace, "delete", "pod", pod, "--wait=false")
}

// kill ends the operator's process by SIGKILL, from the node.
func kill(pod string) {
	GinkgoHelper()
	requireLocalCluster("only on the local cluster's node can a process be killed")
	id := kubectl("-n", operatorNamespace, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	id = strings.TrimPrefix(id, "containerd://")
	Expect(id).NotTo(BeEmpty())
	output, err := exec.Command("../../bin/local-cluster", "exec", "--", "/bin/sh", "-c",
		`for p in $(grep -l `+id+` /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3); do [ "$(readlink /proc/$p/exe)" = /manager ] && kill -KILL $p && echo killed; done`).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	Expect(string(output)).To(Equal("killed\n"))
}

//go:build e2e

package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// nodes places an Echo by spec.pod, and reserves all nodes meanwhile.
func nodes() {
	It("runs on a tainted node only while it selects and tolerates it, and reports the scheduler's words otherwise", func() {
		const (
			namespace = "nodes-e2e"
			// infra is the key of the label and of the taint that the sample names.
			infra = "node-role.kubernetes.io/infra"
		)
		podOf := func() corev1.Pod {
			GinkgoHelper()
			WaitSettled(namespace)
			pods, err := Pods(namespace, "kkloud.io/echo=infra-canary")
			Expect(err).NotTo(HaveOccurred())
			Expect(pods).To(HaveLen(1))
			return pods[0]
		}
		degraded := Condition(namespace, "infra-canary", echov1.ConditionDegraded)
		release := func() {
			Kubectl("label", "nodes", "--all", infra+"-")
			_, _ = TryKubectl("", "taint", "nodes", "--all", infra+":NoSchedule-") // It fails if there is no such taint.
		}
		release() // An interrupted run leaves both.

		NewNamespace(namespace)
		Kubectl("-n", namespace, "apply", "-f", "../../config/samples/infra-canary.yaml")
		Eventually(degraded).Should(SatisfyAll(MatchRegexp(`^True Unschedulable: .*0/\d+ nodes are available`),
			ContainSubstring("didn't match Pod's node affinity/selector")))

		DeferCleanup(release)
		Kubectl("taint", "nodes", "--all", infra+":NoSchedule")
		Kubectl("label", "nodes", "--all", infra+"=")
		pod := podOf()
		Expect(pod.Spec.PriorityClassName).To(Equal("system-cluster-critical"))
		Expect(pod.Labels).To(HaveKeyWithValue("team", "platform"))
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/contact", "platform@example.com"))
		ExpectBody(namespace, "infra-canary", "80", Equal("ok\n"))

		PatchEcho(namespace, "infra-canary", `{"pod":null}`)
		Eventually(degraded).Should(SatisfyAll(HavePrefix("True Unschedulable: "), ContainSubstring("untolerated taint")))
		release()
		pod = podOf()
		Expect(pod.Spec.PriorityClassName).To(BeEmpty())
		Expect(pod.Labels).NotTo(HaveKey("team"))
		Expect(pod.Annotations).NotTo(HaveKey("example.com/contact"))
	})
}

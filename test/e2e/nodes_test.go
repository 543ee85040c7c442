//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

const (
	taintedNode = "tainted-e2e"
	// infra is the key of the label and of the taint of the node.
	infra = "node-role.kubernetes.io/infra"
)

// nodes places Echoes by spec.pod. The second node is a Node object without a kubelet: the scheduler
// decides as for any node, and startNode reports what a kubelet would.
func nodes() {
	const namespace = nodesNamespace
	selector := map[string]any{infra: ""}
	tolerations := []any{map[string]any{"key": infra, "operator": "Exists", "effect": "NoSchedule"}}

	BeforeAll(func() {
		newNamespace(namespace)
		startNode()
	})

	It("runs on the tainted node if it selects and tolerates it, and elsewhere again without the settings", func() {
		kubectl("-n", namespace, "apply", "-f", "../../config/samples/infra-canary.yaml")
		waitSettled(namespace)
		pod := podsOf(namespace, "infra-canary")[0]
		Expect(pod.Spec.NodeName).To(Equal(taintedNode))
		Expect(pod.Spec.PriorityClassName).To(Equal("system-cluster-critical"))
		Expect(pod.Labels).To(HaveKeyWithValue("team", "platform"))
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/contact", "platform@example.com"))

		setPod("infra-canary", nil)
		waitSettled(namespace)
		expectAnswer(namespace, "infra-canary", "80", Equal("ok\n"))
		pod = podsOf(namespace, "infra-canary")[0]
		Expect(pod.Spec.NodeName).NotTo(Equal(taintedNode))
		Expect(pod.Spec.PriorityClassName).To(BeEmpty())
		Expect(pod.Labels).NotTo(HaveKey("team"))
		Expect(pod.Annotations).NotTo(HaveKey("example.com/contact"))
	})

	It("is Unschedulable in the scheduler's words if it selects the node without tolerating its taint", func() {
		apply(namespace, echoManifest("untolerant", map[string]any{"message": "m", "pod": map[string]any{"nodeSelector": selector}}))
		Eventually(func() string {
			return kubectl("-n", namespace, "get", "echo", "untolerant", "-o", `jsonpath={range .status.conditions[?(@.type=="Degraded")]}{.reason}: {.message}{end}`)
		}).Should(SatisfyAll(MatchRegexp(`^Unschedulable: .*0/\d+ nodes are available`),
			ContainSubstring("untolerated taint"), ContainSubstring("didn't match Pod's node affinity/selector")))

		setPod("untolerant", map[string]any{"tolerations": tolerations})
		waitSettled(namespace)
		Expect(podsOf(namespace, "untolerant")[0].Spec.NodeName).To(Equal(taintedNode))

		setPod("untolerant", nil)
		waitSettled(namespace)
		Expect(podsOf(namespace, "untolerant")[0].Spec.NodeName).NotTo(Equal(taintedNode))
		expectAnswer(namespace, "untolerant", "80", Equal("m\n"))
	})

	It("gives its pull secrets to its pods, and takes only those back", func() {
		apply(namespace, echoManifest("private", map[string]any{"message": "m"}))
		waitSettled(namespace)
		Expect(pullSecretsOf(namespace, "private")).To(BeEmpty())

		setPod("private", map[string]any{"imagePullSecrets": []any{map[string]any{"name": "registry"}, map[string]any{"name": "mirror"}}})
		waitSettled(namespace)
		Expect(pullSecretsOf(namespace, "private")).To(ConsistOf("registry", "mirror"))

		kubectl("-n", namespace, "patch", "deployment", "echo-private", "-p", `{"spec":{"template":{"spec":{"imagePullSecrets":[{"name":"other"}]}}}}`)
		setPod("private", nil)
		waitSettled(namespace)
		Expect(pullSecretsOf(namespace, "private")).To(Equal([]string{"other"}))
	})
}

const nodesNamespace = "nodes-e2e"

// setPod sets or removes spec.pod. Settings that are not part of the map stay.
func setPod(echo string, settings map[string]any) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"pod": settings}})
	Expect(err).NotTo(HaveOccurred())
	kubectl("-n", nodesNamespace, "patch", "echo", echo, "--type=merge", "-p", string(patch))
}

func podsOf(namespace, echo string) []corev1.Pod {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(json.Unmarshal([]byte(kubectl("-n", namespace, "get", "pods", "-l", "kkloud.io/echo="+echo, "-o", "json")), &pods)).To(Succeed())
	return pods.Items
}

// pullSecretsOf returns the names of the pull secrets of the Echo's first pod.
func pullSecretsOf(namespace, echo string) (names []string) {
	GinkgoHelper()
	for _, secret := range podsOf(namespace, echo)[0].Spec.ImagePullSecrets {
		names = append(names, secret.Name)
	}
	return names
}

// startNode registers a tainted node until the container ends, and does what its kubelet would do:
// renew the lease of the node, report the status of its pods, and confirm their deletion.
func startNode() {
	GinkgoHelper()
	DeferCleanup(func() { kubectl("delete", "node", taintedNode, "--ignore-not-found") })
	apply("default", fmt.Sprintf(`{"apiVersion": "v1", "kind": "Node",
		"metadata": {"name": %q, "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": %q, "kubernetes.io/hostname": %[1]q, %[3]q: ""}},
		"spec": {"taints": [{"key": %[3]q, "effect": "NoSchedule"}]}}`, taintedNode, runtime.GOARCH, infra))
	renewLease()
	now := time.Now().UTC().Format(time.RFC3339)
	kubectl("patch", "node", taintedNode, "--subresource=status", "-p", fmt.Sprintf(`{"status": {
		"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
		"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "written by a test",
			"lastHeartbeatTime": %q, "lastTransitionTime": %[1]q}]}}`, now))

	done, stopped := make(chan struct{}), make(chan struct{})
	DeferCleanup(func() {
		close(done)
		<-stopped
	})
	go func() {
		defer GinkgoRecover()
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
				renewLease()
				reportPods()
			}
		}
	}()
}

// renewLease shows the node lifecycle controller that the node runs.
func renewLease() {
	apply("kube-node-lease", fmt.Sprintf(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": %q},
		"spec": {"holderIdentity": %[1]q, "leaseDurationSeconds": 40, "renewTime": %q}}`, taintedNode, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")))
}

// reportPods reports every pod of the node as running and ready, and confirms deletions. It ignores
// errors, because a pod may be deleted at any time; the next call tries again.
func reportPods() {
	output, err := tryKubectl("", "get", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+taintedNode, "-o", "json")
	var pods corev1.PodList
	if err != nil || json.Unmarshal([]byte(output), &pods) != nil {
		return
	}
	for _, pod := range pods.Items {
		switch {
		case pod.DeletionTimestamp != nil:
			_, _ = tryKubectl("", "-n", pod.Namespace, "delete", "pod", pod.Name, "--force", "--grace-period=0")
		case pod.Status.Phase == corev1.PodPending:
			container := pod.Spec.Containers[0]
			now := time.Now().UTC().Format(time.RFC3339)
			_, _ = tryKubectl("", "-n", pod.Namespace, "patch", "pod", pod.Name, "--subresource=status", "-p", strings.NewReplacer(
				"NAME", container.Name, "IMAGE", container.Image, "NOW", now).Replace(`{"status": {"phase": "Running",
				"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "NOW"}],
				"containerStatuses": [{"name": "NAME", "image": "IMAGE", "imageID": "none", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "NOW"}}}]}}`))
		}
	}
}

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/gateway"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

const verifyNamespace = "verify-e2e"

// verified returns the spec of an Echo that is verified every second.
func verified(message string, replicas int) map[string]any {
	return map[string]any{"message": message, "replicas": replicas,
		"verify": map[string]any{"periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 3}}
}

// verifiedCondition returns status, reason and message of the condition Verified.
func verifiedCondition(echo string) func() string {
	return func() string {
		return kubectl("-n", verifyNamespace, "get", "echo", echo, "-o", `jsonpath={range .status.conditions[?(@.type=="Verified")]}{.status} {.reason}: {.message}{end}`)
	}
}

// createVerified creates an Echo and waits until its answer is verified.
func createVerified(echo string, replicas int) {
	GinkgoHelper()
	apply(verifyNamespace, echoManifest(echo, verified(echo, replicas)))
	kubectl("-n", verifyNamespace, "wait", "--for=condition=Verified", "echo/"+echo, "--timeout=120s")
	waitReady(verifyNamespace, echo)
}

// breakages is the table of the times until the condition Verified reports a breakage and its end.
var breakages []string

// breakage breaks the answer of the Echo, waits for the condition, ends the breakage and waits until the
// answer is verified again.
func breakage(echo string, broken types.GomegaMatcher, start func(), end func()) {
	GinkgoHelper()
	breakageOf(echo, verifiedCondition(echo), broken, start, end)
}

// breakageOf is a breakage that another report than the condition Verified shows.
func breakageOf(echo string, report func() string, broken types.GomegaMatcher, start func(), end func()) {
	GinkgoHelper()
	since := time.Now()
	start()
	Eventually(report, "2m", "200ms").Should(broken, "report about Echo %s/%s", verifyNamespace, echo)
	noticed := time.Since(since)
	since = time.Now()
	end()
	Eventually(verifiedCondition(echo), "3m", "200ms").Should(HavePrefix("True Verified"), "condition Verified of Echo %s/%s", verifyNamespace, echo)
	breakages = append(breakages, fmt.Sprintf("| %s | %.1f s | %.1f s |", CurrentSpecReport().LeafNodeText, noticed.Seconds(), time.Since(since).Seconds()))
}

// breakageByQuota is a breakage by a quota that rejects the pods of the Echo's verifier. The Echo stays
// ready. After the quota, retry may speed up the next attempt to create the pods.
func breakageByQuota(echo, message string, retry func()) {
	GinkgoHelper()
	DeferCleanup(func() { kubectl("-n", verifyNamespace, "delete", "quota", "pods", "--ignore-not-found") })
	breakage(echo, isUnknown(message), func() {
		kubectl("-n", verifyNamespace, "create", "quota", "pods", "--hard=pods=1")
		kubectl("-n", verifyNamespace, "delete", "pods", "-l", "kkloud.io/verifies="+echo, "--now")
	}, func() {
		waitReady(verifyNamespace, echo)
		kubectl("-n", verifyNamespace, "delete", "quota", "pods")
		retry()
	})
}

func failsOn(layer string) types.GomegaMatcher {
	return MatchRegexp(`^False VerificationFailed: (.*; )?` + layer + ` fails on node \S+`)
}

func isUnknown(text string) types.GomegaMatcher {
	return SatisfyAll(HavePrefix("Unknown VerifierNotRunning: "), ContainSubstring(text))
}

// impostor returns a pod with the label of the Echo's pods, whose server gives another answer.
func impostor(echo string) string {
	GinkgoHelper()
	var deployment appsv1.Deployment
	Expect(json.Unmarshal([]byte(kubectl("-n", verifyNamespace, "get", "deployment", "echo-"+echo, "-o", "json")), &deployment)).To(Succeed())
	pod := corev1.Pod{Spec: deployment.Spec.Template.Spec}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "impostor-"+echo
	pod.Labels = map[string]string{"kkloud.io/echo": echo}
	for i, arg := range pod.Spec.Containers[0].Args {
		if strings.HasPrefix(arg, "-text=") {
			pod.Spec.Containers[0].Args[i] = "-text=another answer"
		}
	}
	manifest, err := json.Marshal(pod)
	Expect(err).NotTo(HaveOccurred())
	return string(manifest)
}

// signal sends a signal to every process of the node whose program and command line match.
func signal(name, program, argument string) {
	GinkgoHelper()
	output, err := exec.Command("../../bin/local-cluster", "exec", "--", "/bin/sh", "-c",
		`for p in $(grep -l -e '`+argument+`' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); do case "$(readlink /proc/$p/exe)" in *`+program+`) kill -`+name+` $p && echo sent;; esac; done`).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	Expect(string(output)).To(ContainSubstring("sent"), "a process of %s with the argument %s", program, argument)
}

// missingVerifierImage gives the pods of verifiers an image that does not exist.
const missingVerifierImage = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: missing-verifier-e2e}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: verify-e2e}}
    objectSelector: {matchLabels: {kkloud.io/verifies: unavailable}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: |
        Object{spec: Object.spec{containers: object.spec.containers.map(c,
          Object.spec.containers{name: c.name, image: "quay.io/missing/verifier:v0"})}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: missing-verifier-e2e}
spec: {policyName: missing-verifier-e2e}
`

// verification breaks the answers of Echoes in the ways that clients experience.
func verification() {
	run := func(args ...string) string {
		GinkgoHelper()
		return kubectl(append([]string{"-n", verifyNamespace}, args...)...)
	}

	BeforeAll(func() { newNamespace(verifyNamespace) })
	AfterAll(func() {
		AddReportEntry("\n| breakage | until Verified is not True | until Verified is True again |\n|---|---|---|\n" + strings.Join(breakages, "\n"))
	})

	It("reports a pod with the label of the Echo's pods, which is one of two endpoints", func() {
		createVerified("half", 1)
		breakage("half", failsOn("service"), func() { apply(verifyNamespace, impostor("half")) }, func() { run("delete", "pod", "impostor-half", "--now") })
	})

	It("reports a pod with the label of the Echo's pods, which is one of five endpoints", Label("breakage"), func() {
		createVerified("fifth", 4)
		breakage("fifth", failsOn("service"), func() { apply(verifyNamespace, impostor("fifth")) }, func() { run("delete", "pod", "impostor-fifth", "--now") })
	})

	It("reports an EndpointSlice with the endpoint of another server", Label("breakage"), func() {
		createVerified("slices", 1)
		createVerified("other", 1)
		ip := podsOf(verifyNamespace, "other")[0].Status.PodIP
		var remove func()
		breakage("slices", failsOn("service"), func() { remove = workload.AddWrongEndpoint(verifyNamespace, "slices", ip) }, func() { remove() })
	})

	It("reports a change of the Service's selector through the pods of the verifier while the operator is not running", Label("breakage"), func() {
		createVerified("selector", 1)
		createVerified("selected", 1)
		readiness := func() string {
			return run("get", "pods", "-l", "kkloud.io/verifies=selector", "-o", `jsonpath={.items[*].status.containerStatuses[?(@.name=="service")].ready}`)
		}
		stopOperator()
		breakageOf("selector", readiness, Equal("false"), func() {
			run("patch", "service", "echo-selector", "-p", `{"spec":{"selector":{"kkloud.io/echo":"selected"}}}`)
			Eventually(readiness, "1m").Should(Equal("false"), "readiness of the container service")
		}, func() {
			kubectl("-n", operatorNamespace, "scale", operatorDeployment, "--replicas=1")
			kubectl("-n", operatorNamespace, "rollout", "status", operatorDeployment, "--timeout=60s")
			Eventually(readiness, "1m").Should(Equal("true"), "readiness of the container service")
			Eventually(verifiedCondition("selector"), "1m").Should(HavePrefix("True Verified"))
		})
	})

	It("reports that kube-proxy does not program the new endpoint", Label("breakage"), func() {
		requireLocalCluster("it stops kube-proxy on the node")
		createVerified("proxy", 1)
		breakage("proxy", failsOn("service"), func() {
			signal("STOP", "kube-proxy", "kube-proxy")
			DeferCleanup(signal, "CONT", "kube-proxy", "kube-proxy")
			run("delete", "pods", "-l", "kkloud.io/echo=proxy", "--now")
		}, func() { signal("CONT", "kube-proxy", "kube-proxy") })
	})

	It("reports that the cluster has no DNS server", Label("breakage"), func() {
		requireLocalCluster("it stops the DNS server")
		createVerified("dns", 1)
		restore := func() {
			kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=1")
			kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
		}
		DeferCleanup(restore)
		breakage("dns", failsOn("dns"), func() { kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=0") }, restore)
	})

	It("reports a server that hangs, until the kubelet restarts it", Label("breakage"), func() {
		requireLocalCluster("it stops a process on the node")
		createVerified("hanging", 1)
		breakage("hanging", failsOn("service"), func() { signal("STOP", "http-echo", "-text=hanging") }, func() {})
	})

	It("reports a server that crashes, until the kubelet starts it again", Label("breakage"), func() {
		requireLocalCluster("it ends a process on the node")
		createVerified("crashing", 1)
		crash := func() { signal("KILL", "http-echo", "-text=crashing") }
		// The kubelet starts the server at once after the first crash, after 10 s after the second, and after
		// 20 s after the third.
		for restarts := range 2 {
			crash()
			run("wait", "pods", "-l", "kkloud.io/echo=crashing", fmt.Sprintf("--for=jsonpath={.status.containerStatuses[0].restartCount}=%d", restarts+1), "--timeout=60s")
		}
		waitReady(verifyNamespace, "crashing")
		Eventually(verifiedCondition("crashing")).Should(HavePrefix("True Verified"))
		breakage("crashing", failsOn("service"), crash, func() {})
	})

	It("reports no failure when the message changes", sampled, func() {
		createVerified("edited", 2)
		for i := range 3 {
			run("patch", "echo", "edited", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"message":"edit %d"}}`, i))
			run("wait", fmt.Sprintf("--for=jsonpath={.status.observedGeneration}=%d", i+2), "echo/edited", "--timeout=60s")
			Eventually(verifiedCondition("edited")).Should(HavePrefix("True Verified"))
			waitReady(verifyNamespace, "edited")
		}
		Expect(run("events", "--for", "echo/edited")).NotTo(ContainSubstring("VerificationFailed"))
	})

	It("reports Unknown, and the Echo stays ready, while the image of the verifier cannot be pulled", Label("breakage"), func() {
		createVerified("unavailable", 1)
		DeferCleanup(func() { _, _ = tryKubectl(missingVerifierImage, "delete", "--ignore-not-found", "-f", "-") })
		apply("default", missingVerifierImage)
		restart := func() { run("delete", "pods", "-l", "kkloud.io/verifies=unavailable", "--now") }
		Eventually(func() string { // Until the policy is in force.
			restart()
			time.Sleep(2 * time.Second)
			return run("get", "pods", "-l", "kkloud.io/verifies=unavailable", "-o", "jsonpath={.items[*].spec.containers[*].image}")
		}).Should(ContainSubstring("quay.io/missing/verifier"))
		breakage("unavailable", isUnknown("quay.io/missing/verifier"), func() {}, func() {
			waitReady(verifyNamespace, "unavailable")
			output, err := tryKubectl(missingVerifierImage, "delete", "-f", "-")
			Expect(err).NotTo(HaveOccurred(), output)
			Eventually(func() string {
				restart()
				time.Sleep(2 * time.Second)
				return run("get", "pods", "-l", "kkloud.io/verifies=unavailable", "-o", "jsonpath={.items[*].spec.containers[*].image}")
			}).ShouldNot(ContainSubstring("quay.io/missing/verifier"))
		})
	})

	It("reports Unknown, and the Echo stays ready, while no node accepts the pod of the verifier", Label("breakage"), func() {
		requireLocalCluster("it cordons the node")
		createVerified("unscheduled", 1)
		uncordon := func() { kubectl("uncordon", "-l", "kubernetes.io/os=linux") }
		DeferCleanup(uncordon)
		breakage("unscheduled", isUnknown("nodes are available"), func() {
			kubectl("cordon", "-l", "kubernetes.io/os=linux")
			run("delete", "pods", "-l", "kkloud.io/verifies=unscheduled", "--now")
		}, func() {
			waitReady(verifyNamespace, "unscheduled")
			uncordon()
		})
	})

	It("reports Unknown, and the Echo stays ready, while a quota rejects the pod of the verifier", Label("breakage"), func() {
		createVerified("quota", 1)
		breakageByQuota("quota", "exceeded quota", func() {
			// The controller of a ReplicaSet retries after up to several minutes, that of a new one immediately.
			run("delete", "replicasets", "-l", "kkloud.io/verifies=quota")
		})
	})

	It("verifies from every node only if the administrator allows it, and reports a quota that rejects the pods", sampled, func() {
		spec := verified("nodes", 1)
		spec["verify"].(map[string]any)["from"] = "EveryNode"
		apply(verifyNamespace, echoManifest("nodes", spec))
		Eventually(verifiedCondition("nodes"), "1m").Should(HavePrefix("Unknown EveryNodeNotAllowed"))
		setVariable := func(config string) {
			GinkgoHelper()
			kubectl("-n", operatorNamespace, "patch", "subscription", "echo-operator", "--type=merge", "-p", `{"spec":{"config":`+config+`}}`)
		}
		DeferCleanup(func() {
			setVariable("null")
			Eventually(verifiedCondition("nodes"), "3m").Should(HavePrefix("Unknown EveryNodeNotAllowed"))
		})
		setVariable(`{"env":[{"name":"ALLOW_EVERY_NODE_VERIFICATION","value":"true"}]}`)
		Eventually(verifiedCondition("nodes"), "3m").Should(HavePrefix("True Verified"))
		Expect(run("get", "daemonset", "verify-nodes", "-o", "jsonpath={.status.numberReady}/{.status.desiredNumberScheduled}")).To(MatchRegexp(`^([1-9]\d*)/\d+$`))

		breakageByQuota("nodes", "DaemonSet verify-nodes has a pod of the newest spec on 0 of ", func() {})
	})

	It("reports the layer of a Gateway that stops", Label("gateway"), func() {
		requireLocalCluster("it stops the Gateway")
		gateway.Install()
		spec := routed("route", "traefik.traefik.svc.cluster.local", parent(gateway.HTTP))
		spec["verify"] = verified("", 1)["verify"]
		apply(verifyNamespace, echoManifest("route", spec))
		Eventually(verifiedCondition("route")).Should(HavePrefix("True Verified"))
		restore := func() {
			kubectl("-n", "traefik", "scale", "deployment/traefik", "--replicas=1")
			kubectl("-n", "traefik", "rollout", "status", "deployment/traefik", "--timeout=60s")
		}
		DeferCleanup(restore)
		breakage("route", failsOn("route"), func() { kubectl("-n", "traefik", "scale", "deployment/traefik", "--replicas=0") }, restore)
	})
}

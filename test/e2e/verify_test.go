//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// verified returns the spec of an Echo that is verified every second.
func verified(message string) echov1.EchoSpec {
	return echov1.EchoSpec{Message: message, Verify: &echov1.Verify{PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 3}}
}

// breakage breaks the response of the Echo, waits until its condition Verified reports that, ends the breakage and waits
// until the response is verified again.
func breakage(namespace, echo string, broken types.GomegaMatcher, start func(), end func()) {
	GinkgoHelper()
	breakageOf(namespace, echo, Condition(namespace, echo, echov1.ConditionVerified), broken, start, end)
}

// breakageOf is a breakage that another report than the condition Verified shows.
func breakageOf(namespace, echo string, report func() (string, error), broken types.GomegaMatcher, start func(), end func()) {
	GinkgoHelper()
	since := time.Now()
	start()
	Eventually(report, "2m", "200ms").Should(broken, "report about Echo %s/%s", namespace, echo)
	noticed := time.Since(since)
	since = time.Now()
	end()
	expectVerified(namespace, echo)
	AddReportEntry(fmt.Sprintf("reported after %.1f s, verified again after %.1f s", noticed.Seconds(), time.Since(since).Seconds()))
}

func expectVerified(namespace, echo string) {
	GinkgoHelper()
	Eventually(Condition(namespace, echo, echov1.ConditionVerified), "3m", "200ms").Should(HavePrefix("True Verified"))
}

func failsOn(layer string) types.GomegaMatcher {
	return MatchRegexp(`^False VerificationFailed: (.*; )?` + layer + ` fails on node \S+`)
}

// wrongResponse is the breakage that any user with permission to create pods can cause.
func wrongResponse() {
	It("reports a pod with the label of the Echo's pods, which is one of two endpoints", func() {
		const namespace = "wrong-response-e2e"
		NewNamespace(namespace)
		CreateEcho(namespace, "half", verified("half"))
		WaitReady(namespace, "half")
		impostor := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "impostor", Labels: map[string]string{"kkloud.io/echo": "half"}},
			Spec:       Get(namespace, "echo-half", &appsv1.Deployment{}).Spec.Template.Spec,
		}
		for i, arg := range impostor.Spec.Containers[0].Args {
			if strings.HasPrefix(arg, "-text=") {
				impostor.Spec.Containers[0].Args[i] = "-text=another response"
			}
		}
		breakage(namespace, "half", failsOn("service"),
			func() { Expect(Client().Create(context.Background(), impostor)).To(Succeed()) },
			func() {
				Expect(Client().Delete(context.Background(), impostor, client.GracePeriodSeconds(1))).To(Succeed())
			})
	})
}

// verification breaks the responses of Echoes in the ways that clients experience.
func verification() {
	const namespace = "verify-e2e"
	run := func(args ...string) string {
		GinkgoHelper()
		return Kubectl(append([]string{"-n", namespace}, args...)...)
	}
	create := func(echo string) {
		GinkgoHelper()
		CreateEcho(namespace, echo, verified(echo))
		WaitReady(namespace, echo)
	}
	// byQuota is a breakage by a quota that rejects the pods of the Echo's verifier. The Echo stays ready. After the
	// quota, retry may speed up the next attempt to create the pods.
	byQuota := func(echo, message string, retry func()) {
		GinkgoHelper()
		DeferCleanup(func() { run("delete", "quota", "pods", "--ignore-not-found") })
		breakage(namespace, echo, SatisfyAll(HavePrefix("Unknown VerifierNotRunning: "), ContainSubstring(message)), func() {
			run("create", "quota", "pods", "--hard=pods=1")
			run("delete", "pods", "-l", "kkloud.io/verifies="+echo, "--now")
		}, func() {
			WaitReady(namespace, echo)
			run("delete", "quota", "pods")
			retry()
		})
	}

	BeforeAll(func() { NewNamespace(namespace) })

	It("reports a change of the Service's selector through the pods of the verifier while the operator is not running", func() {
		create("selector")
		create("selected")
		readiness := func() (string, error) {
			pods, err := Pods(namespace, "kkloud.io/verifies=selector")
			ready := ""
			for _, pod := range pods {
				for _, container := range pod.Status.ContainerStatuses {
					if container.Name == "service" {
						ready += fmt.Sprint(container.Ready)
					}
				}
			}
			return ready, err
		}
		StopOLM()
		Kubectl("-n", operatorNamespace, "scale", operatorDeployment, "--replicas=0")
		Kubectl("-n", operatorNamespace, "wait", "--for=delete", "pod", "-l", operatorPods, "--timeout=60s")
		start := func() {
			Kubectl("-n", operatorNamespace, "scale", operatorDeployment, "--replicas=2")
			awaitOperator()
		}
		DeferCleanup(start)
		breakageOf(namespace, "selector", readiness, Equal("false"), func() {
			run("patch", "service", "echo-selector", "-p", `{"spec":{"selector":{"kkloud.io/echo":"selected"}}}`)
		}, func() {
			start()
			Eventually(readiness, "1m").Should(Equal("true"), "readiness of the container service")
		})
	})

	It("reports that kube-proxy does not program the new endpoint", func() {
		requireLocalCluster("it stops kube-proxy on the node")
		create("proxy")
		DeferCleanup(signal, "CONT", "kube-proxy", "cmdline", "kube-proxy")
		breakage(namespace, "proxy", failsOn("service"), func() {
			signal("STOP", "kube-proxy", "cmdline", "kube-proxy")
			run("delete", "pods", "-l", "kkloud.io/echo=proxy", "--now")
		}, func() { signal("CONT", "kube-proxy", "cmdline", "kube-proxy") })
	})

	It("reports that the cluster has no DNS server", func() {
		requireLocalCluster("it stops the DNS server")
		create("dns")
		restore := func() {
			Kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=1")
			Kubectl("-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=60s")
		}
		DeferCleanup(restore)
		breakage(namespace, "dns", failsOn("dns"), func() { Kubectl("-n", "kube-system", "scale", "deployment/coredns", "--replicas=0") }, restore)
	})

	It("reports a server that hangs, until the kubelet restarts it", func() {
		requireLocalCluster("it stops a process on the node")
		create("hanging")
		breakage(namespace, "hanging", failsOn("service"), func() { signal("STOP", "http-echo", "cmdline", "-text=hanging") }, func() {})
	})

	It("reports no failure when the message changes", func() {
		create("edited")
		for i := range 3 {
			PatchEcho(namespace, "edited", fmt.Sprintf(`{"message":"edit %d"}`, i))
			WaitReady(namespace, "edited")
		}
		Expect(run("events", "--for", "echo/edited")).NotTo(ContainSubstring("VerificationFailed"))
	})

	It("reports Unknown, and the Echo stays ready, while a quota rejects the pod of the verifier", func() {
		create("quota")
		byQuota("quota", "exceeded quota", func() {
			// The controller of a ReplicaSet retries after up to several minutes, that of a new one immediately.
			run("delete", "replicasets", "-l", "kkloud.io/verifies=quota")
		})
	})

	It("verifies from every node only if the administrator allows it, and reports a quota that rejects the pods", func() {
		spec := verified("nodes")
		spec.Verify.From = echov1.VerifyFromEveryNode
		CreateEcho(namespace, "nodes", spec)
		condition := Condition(namespace, "nodes", echov1.ConditionVerified)
		Eventually(condition, "1m").Should(HavePrefix("Unknown EveryNodeNotAllowed"))
		setConfig := func(config string) {
			GinkgoHelper()
			Kubectl("-n", operatorNamespace, "patch", "subscription", "echo-operator", "--type=merge", "-p", `{"spec":{"config":`+config+`}}`)
		}
		DeferCleanup(func() {
			setConfig("null")
			Eventually(condition, "3m").Should(HavePrefix("Unknown EveryNodeNotAllowed"))
		})
		setConfig(`{"env":[{"name":"ALLOW_EVERY_NODE_VERIFICATION","value":"true"}]}`)
		expectVerified(namespace, "nodes")
		Expect(Get(namespace, "verify-nodes", &appsv1.DaemonSet{}).Status.NumberReady).To(BeNumerically(">=", 1))

		byQuota("nodes", "DaemonSet verify-nodes has a pod of the newest spec on 0 of ", func() {})
	})
}

// signal sends a signal to every process of the node that runs the program, and whose file in /proc contains a text.
// The name of a file in bin/ ends with its version.
func signal(name, program, file, text string) {
	GinkgoHelper()
	script := fmt.Sprintf(`
		for p in $(grep -l -e '%s' /proc/[0-9]*/%s 2>/dev/null | cut -d/ -f3); do
			case "$(readlink /proc/$p/exe)" in */%[3]s|*/%[3]s-v*) kill -%[4]s $p && echo sent;; esac
		done`, text, file, program, name)
	output, err := exec.Command("../../bin/local-cluster", "exec", "--", "/bin/sh", "-c", script).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
	Expect(string(output)).To(ContainSubstring("sent"), "a process of %s with %s in its %s", program, text, file)
}

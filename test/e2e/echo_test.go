//go:build e2e

package e2e

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

func echoes() {
	It("reverts drift, recreates a deleted Service, and leaves nothing after the deletion of the Echo", func() {
		const namespace = "drift-e2e"
		NewNamespace(namespace)
		CreateEcho(namespace, "hello", echov1.EchoSpec{Message: "hello", Replicas: 2})
		WaitReady(namespace, "hello")

		Kubectl("-n", namespace, "scale", "deployment/echo-hello", "--replicas=1")
		Kubectl("-n", namespace, "set", "image", "deployment/echo-hello", "echo=docker.io/library/busybox:1.37")
		Kubectl("-n", namespace, "delete", "service", "echo-hello")
		Eventually(func(g Gomega) {
			deployment := Get(namespace, "echo-hello", &appsv1.Deployment{})
			g.Expect(deployment.Spec.Replicas).To(HaveValue(BeEquivalentTo(2)))
			g.Expect(deployment.Spec.Template.Spec.Containers[0].Image).To(MatchRegexp("echo-operator-http-echo[:@]"))
		}).Should(Succeed())
		WaitSettled(namespace)
		ExpectBody(namespace, "hello", "80", Equal("hello\n"))

		Kubectl("-n", namespace, "delete", "echo", "hello")
		Kubectl("-n", namespace, "wait", "--for=delete", "--timeout=1m",
			"deployment/echo-hello", "service/echo-hello", "poddisruptionbudget/echo-hello")
		Eventually(Pods).WithArguments(namespace, "kkloud.io/echo").Should(BeEmpty())
	})

	It("responds byte for byte, with quotes, line breaks, emoji, variables, and 16,384 characters", func() {
		const namespace = "messages-e2e"
		NewNamespace(namespace)
		messages := []string{
			`"double" 'single' \ back`, "two\nlines\n\n", "--leading dashes", "emoji 😀 ü", "$(HOME) $$(HOME) $HOME $", strings.Repeat("ß", 16384),
		}
		for i, message := range messages {
			CreateEcho(namespace, fmt.Sprint("m", i), echov1.EchoSpec{Message: message})
		}
		CreateEcho(namespace, "privileged-port", echov1.EchoSpec{Message: "low", TargetPort: 80, Port: 8080})
		WaitSettled(namespace)
		for i, message := range messages {
			ExpectBody(namespace, fmt.Sprint("m", i), "80", Equal(message+"\n"))
		}
		ExpectBody(namespace, "privileged-port", "8080", Equal("low\n"))
	})
}

// failures are those that only a kubelet reports.
func failures() {
	DescribeTable("reports why pods fail, and recovers with a valid spec", func(name string, spec echov1.EchoSpec, want ...string) {
		namespace := name + "-e2e"
		NewNamespace(namespace)
		spec.Message = "m"
		CreateEcho(namespace, name, spec)
		for _, text := range want {
			Eventually(Condition(namespace, name, echov1.ConditionDegraded), "3m").Should(ContainSubstring(text))
		}
		PatchEcho(namespace, name, `{"image":null,"command":null,"readinessPath":null}`)
		WaitSettled(namespace)
		ExpectBody(namespace, name, "80", Equal("m\n"))
	},
		Entry("given a container that exits", "crashing", echov1.EchoSpec{
			Image: "docker.io/library/busybox:1.37", Command: []string{"sh", "-c", "echo the cat ate the disk >&2; exit 3"},
			Pod: &echov1.PodSettings{RunAsUser: 65532},
		}, "True CrashLooping: ", "exited with code 3: the cat ate the disk"),
		Entry("given a container that does not respond to its probes", "deaf",
			echov1.EchoSpec{Image: "registry.k8s.io/pause:3.10.1", ReadinessPath: "/"}, "True ProgressDeadlineExceeded: ", "its probe fails"),
		Entry("given an image whose user is root", "root", echov1.EchoSpec{Image: "docker.io/library/busybox:1.37"},
			"True ContainerCreateFailed: ", "image will run as root", ": set spec.pod.runAsUser"),
		Entry("given a program that needs root", "rootless", echov1.EchoSpec{
			Image: "docker.io/library/busybox:1.37", Command: []string{"mkdir", "/cache"}, Pod: &echov1.PodSettings{RunAsUser: 65532},
		}, "True CrashLooping: Pods never run as root: ", "Permission denied"),
	)
}

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

func lifecycle() {
	const namespace = "op-demo-e2e"
	run := func(args ...string) string {
		GinkgoHelper()
		return kubectl(append([]string{"-n", namespace}, args...)...)
	}

	BeforeAll(func() {
		newNamespace(namespace)
		run("apply", "-f", "../../config/samples/hello.yaml")
	})

	It("makes a new Echo ready and answers with its message", func() {
		waitReady(namespace, "hello")
		table := run("get", "ec")
		Expect(table).To(MatchRegexp(`^NAME +MESSAGE +REPLICAS +READY +AGE\n`))
		Expect(regexp.MustCompile(` {2,}`).ReplaceAllString(table, "   ")).To(ContainSubstring("hello   xin chao operator   2   2/2"))
		Expect(run("get", "ec", "-o", "wide")).To(MatchRegexp(`http://echo-hello\.%s\.svc +Ready`, namespace))
		Expect(run("get", "deploy", "echo-hello", "-o", "jsonpath={.metadata.ownerReferences[0].kind}/"+
			"{.metadata.ownerReferences[0].name} controller={.metadata.ownerReferences[0].controller}")).To(Equal("Echo/hello controller=true"))
		Expect(run("get", "deploy", "echo-hello", "-o", "jsonpath={.spec.template.spec.containers[0].args}")).To(ContainSubstring(`"-text=xin chao operator"`))
		expectAnswer(namespace, "hello", "80", Equal("xin chao operator\n"))
		Expect(run("rollout", "status", "deploy/echo-hello", "--timeout=60s")).To(ContainSubstring("successfully rolled out"))
	})

	It("documents its fields for kubectl explain", func() {
		for field, text := range map[string]string{
			"page.color": "#2196F3", "statusCode": "HTTP status code", "readinessPath": "readiness and liveness probes",
			"pod.nodeSelector": "Labels that a node must have", "pod.tolerations": "Taints of nodes", "pod.priorityClassName": "PriorityClass",
			"pod.imagePullSecrets": "credentials for the registry", "pod.labels": "reserved", "pod.annotations": "reserved",
		} {
			Expect(kubectl("explain", "echo.spec."+field)).To(ContainSubstring(text), "documentation of spec.%s", field)
		}
	})

	It("answers with the new message after an edit", func() {
		run("patch", "echo", "hello", "--type=merge", "-p", `{"spec":{"message":"hello again"}}`)
		run("wait", "--for=jsonpath={.status.observedGeneration}=2", "echo/hello", "--timeout=60s")
		waitReady(namespace, "hello")
		expectAnswer(namespace, "hello", "80", Equal("hello again\n"))
	})

	It("runs four pods after kubectl scale to four", func() {
		run("scale", "echo/hello", "--replicas=4")
		run("wait", "--for=jsonpath={.status.ready}=4/4", "echo/hello", "--timeout=60s")
		waitReady(namespace, "hello")
	})

	It("reverts drift of the Deployment and recreates a deleted Service", func() {
		run("scale", "deployment/echo-hello", "--replicas=1")
		run("set", "image", "deployment/echo-hello", "echo=docker.io/library/busybox:1.37")
		run("delete", "service", "echo-hello")
		Eventually(func() string {
			return run("get", "deploy", "echo-hello", "-o", "jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image}")
		}).Should(MatchRegexp("^4 .*echo-operator-http-echo[:@]"))
		waitReady(namespace, "hello")
		Eventually(func() (string, error) {
			return tryKubectl("", "get", "--raw", "/api/v1/namespaces/"+namespace+"/services/echo-hello:80/proxy/")
		}).Should(Equal("hello again\n"))
	})

	It("leaves no children and no pods after the Echo is deleted", func() {
		run("delete", "echo", "hello")
		Eventually(func() string {
			return run("get", cluster.ChildResources()+",replicasets,pods", "-o", "name")
		}).Should(BeEmpty())
	})
}

func messages() {
	const namespace = "messages-e2e"

	BeforeAll(func() { newNamespace(namespace) })

	It("with quotes, line breaks, emoji, variables and 16,384 characters answers byte for byte", func() {
		messages := []string{
			`"double" 'single' \ back`, "two\nlines\n\n", "--leading dashes", "emoji 😀 ü", "$(HOME) $$(HOME) $HOME $", strings.Repeat("ß", 16384),
		}
		for i, message := range messages {
			apply(namespace, echoManifest(fmt.Sprint("m", i), map[string]any{"message": message}))
		}
		for i, message := range messages {
			waitReady(namespace, fmt.Sprint("m", i))
			expectAnswer(namespace, fmt.Sprint("m", i), "80", Equal(message+"\n"))
		}
	})

	It("with a privileged targetPort answers", func() {
		apply(namespace, echoManifest("low", map[string]any{"message": "low", "targetPort": 80, "port": 8080}))
		waitReady(namespace, "low")
		expectAnswer(namespace, "low", "8080", Equal("low\n"))
	})

	It("with an image that cannot be pulled is ready once the image is removed from the spec", func() {
		apply(namespace, echoManifest("absent", map[string]any{"message": "m", "image": "docker.io/library/absent:1"}))
		Eventually(func() string {
			return kubectl("-n", namespace, "get", "echo", "absent", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		}).Should(SatisfyAll(ContainSubstring("ImagePullFailed"), ContainSubstring("not found")))
		kubectl("-n", namespace, "patch", "echo", "absent", "--type=json", "-p", `[{"op":"remove","path":"/spec/image"}]`)
		waitReady(namespace, "absent")
	})
}

func conflicts() {
	It("reports Conflict without a write, and is ready once the object is deleted", func() {
		const namespace = "conflict-e2e"
		newNamespace(namespace)
		kubectl("-n", namespace, "create", "service", "externalname", "echo-hello", "--external-name=example.invalid")
		before := kubectl("-n", namespace, "get", "service", "echo-hello", "-o", "yaml")
		kubectl("-n", namespace, "apply", "-f", "../../config/samples/hello.yaml")
		Eventually(func() string {
			return kubectl("-n", namespace, "get", "echo", "hello", "-o", `jsonpath={.status.conditions[?(@.type=="Degraded")].reason}`)
		}).Should(Equal("Conflict"))
		Expect(kubectl("-n", namespace, "get", "service", "echo-hello", "-o", "yaml")).To(Equal(before))
		Expect(kubectl("-n", namespace, "events", "--for", "echo/hello")).To(ContainSubstring("Conflict"))
		kubectl("-n", namespace, "delete", "service", "echo-hello")
		waitReady(namespace, "hello")
	})
}

func echoManifest(name string, spec map[string]any) string {
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": map[string]any{"name": name}, "spec": spec,
	})
	Expect(err).NotTo(HaveOccurred())
	return string(manifest)
}

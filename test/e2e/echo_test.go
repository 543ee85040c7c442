//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func seedStory() {
	const namespace = "op-demo-e2e"
	hello := func(args ...string) string {
		GinkgoHelper()
		return kubectl(append([]string{"-n", namespace}, args...)...)
	}

	BeforeAll(func() {
		newNamespace(namespace)
		hello("apply", "-f", "../../config/samples/hello.yaml")
	})

	It("creates an Echo that becomes ready and answers", func() {
		waitReady(namespace, "hello")
		table := hello("get", "ec")
		Expect(table).To(MatchRegexp(`^NAME +MESSAGE +REPLICAS +READY +AGE\n`))
		Expect(regexp.MustCompile(` {2,}`).ReplaceAllString(table, "   ")).To(ContainSubstring("hello   xin chao operator   2   2/2"))
		Expect(hello("get", "ec", "-o", "wide")).To(MatchRegexp(`http://echo-hello\.%s\.svc +Ready`, namespace))
		Expect(hello("get", "deploy", "echo-hello", "-o", "jsonpath={.metadata.ownerReferences[0].kind}/"+
			"{.metadata.ownerReferences[0].name} controller={.metadata.ownerReferences[0].controller}")).To(Equal("Echo/hello controller=true"))
		Expect(hello("get", "deploy", "echo-hello", "-o", "jsonpath={.spec.template.spec.containers[0].args}")).To(ContainSubstring(`"-text=xin chao operator"`))
		expectAnswer(namespace, "hello", "80", Equal("xin chao operator\n"))
		Expect(hello("rollout", "status", "deploy/echo-hello", "--timeout=60s")).To(ContainSubstring("successfully rolled out"))
	})

	It("explains its fields", func() {
		Expect(kubectl("explain", "echo.spec.page.color")).To(SatisfyAll(ContainSubstring("theme colour"), ContainSubstring("#2196F3")))
	})

	It("follows an edit of the message", func() {
		hello("patch", "echo", "hello", "--type=merge", "-p", `{"spec":{"message":"hello again"}}`)
		hello("wait", "--for=jsonpath={.status.observedGeneration}=2", "echo/hello", "--timeout=60s")
		waitReady(namespace, "hello")
		expectAnswer(namespace, "hello", "80", Equal("hello again\n"))
	})

	It("scales", func() {
		hello("scale", "echo/hello", "--replicas=4")
		hello("wait", "--for=jsonpath={.status.ready}=4/4", "echo/hello", "--timeout=60s")
		waitReady(namespace, "hello")
	})

	It("undoes drift", func() {
		hello("scale", "deployment/echo-hello", "--replicas=1")
		hello("set", "image", "deployment/echo-hello", "echo=docker.io/library/busybox:1.37")
		hello("delete", "service", "echo-hello")
		Eventually(func() string {
			return hello("get", "deploy", "echo-hello", "-o", "jsonpath={.spec.replicas} {.spec.template.spec.containers[0].image}")
		}).Should(MatchRegexp("^4 .*echo-operator-http-echo[:@]"))
		waitReady(namespace, "hello")
		Eventually(func() (string, error) {
			return tryKubectl("", "get", "--raw", "/api/v1/namespaces/"+namespace+"/services/echo-hello:80/proxy/")
		}).Should(Equal("hello again\n"))
	})

	It("leaves nothing behind", func() {
		hello("delete", "echo", "hello")
		Eventually(func() string {
			return hello("get", "deployments,services,poddisruptionbudgets,replicasets,pods", "-o", "name")
		}).Should(BeEmpty())
	})
}

func messages() {
	const namespace = "messages-e2e"

	BeforeAll(func() { newNamespace(namespace) })

	It("byte for byte", func() {
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

	It("from a port that is reserved for root", func() {
		apply(namespace, echoManifest("low", map[string]any{"message": "low", "targetPort": 80, "port": 8080}))
		waitReady(namespace, "low")
		expectAnswer(namespace, "low", "8080", Equal("low\n"))
	})

	It("once a bad image is mended", func() {
		apply(namespace, echoManifest("absent", map[string]any{"message": "m", "image": "docker.io/library/absent:1"}))
		Eventually(func() string {
			return kubectl("-n", namespace, "get", "echo", "absent", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")]}`)
		}).Should(SatisfyAll(ContainSubstring("ImagePullFailed"), ContainSubstring("not found")))
		kubectl("-n", namespace, "patch", "echo", "absent", "--type=json", "-p", `[{"op":"remove","path":"/spec/image"}]`)
		waitReady(namespace, "absent")
	})
}

func foreignObjects() {
	It("and converges when they are gone", func() {
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

//go:build e2e

package e2e

import (
	"cmp"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func samples() {
	const namespace = "samples-e2e"

	BeforeAll(func() {
		newNamespace(namespace)
		kubectl("-n", namespace, "apply", "-k", filepath.Join("..", "..", cmp.Or(os.Getenv("SAMPLES"), "config/samples")))
	})

	DescribeTable("makes the Echo ready and answers",
		func(echo, port, text string) {
			waitReady(namespace, echo)
			expectAnswer(namespace, echo, port, ContainSubstring(text))
		},
		Entry("for the smallest sample", "hello", "80", "xin chao operator"),
		Entry("for the sample with most fields", "showcase", "8080", "<title>Most fields</title>"),
		Entry("for the sample with a custom image", "webapp", "80", "nginx"),
		Entry("for the website", "website", "80", "<title>My Personal Blog</title>"),
		Entry("for the options of a vote", "voteconfig", "80", `"Cats"`),
		Entry("for the canary whose answer is verified", "verified-canary", "80", "alive\n"),
		Entry("for go-httpbin, which is ready by its readiness path", "httpbin", "80", "go-httpbin"),
	)

	DescribeTable("answers with the status code and the message while the Echo is ready",
		func(echo string, status int, contentType, text string) {
			waitReady(namespace, echo)
			response, err := http.Get("http://" + forward(namespace, "service/echo-"+echo, "80"))
			Expect(err).NotTo(HaveOccurred())
			defer func() { Expect(response.Body.Close()).To(Succeed()) }()
			body, err := io.ReadAll(response.Body)
			Expect(err).NotTo(HaveOccurred())
			Expect(response.StatusCode).To(Equal(status))
			Expect(response.Header.Get("Content-Type")).To(HavePrefix(contentType))
			Expect(string(body)).To(ContainSubstring(text))
			waitReady(namespace, echo)
		},
		Entry("for the maintenance page", "maintenance-page", http.StatusServiceUnavailable, "text/html", "<title>Back soon</title>"),
		Entry("for the default backend", "default-backend", http.StatusNotFound, "text/plain", "There is no page at this address.\n"),
	)

	It("runs the sample with a custom command, whose log contains its banner", func() {
		waitReady(namespace, "myapp")
		// The image runs as root by default. So the operator has replaced the first pod, which may be terminating.
		Eventually(func() (string, error) {
			return tryKubectl("", "-n", namespace, "logs", "deployment/echo-myapp")
		}).Should(Equal("This pod was created by the Echo operator 🚀\n"))
	})

	It("updates the URL in the status after an edit of the port", func() {
		kubectl("-n", namespace, "patch", "echo", "voteconfig", "--type=merge", "-p", `{"spec":{"message":"[\"Tea\"]","port":8081}}`)
		kubectl("-n", namespace, "wait", "--for=jsonpath={.status.observedGeneration}=2", "echo/voteconfig", "--timeout=60s")
		waitReady(namespace, "voteconfig")
		Expect(kubectl("-n", namespace, "get", "echo", "voteconfig", "-o", "jsonpath={.status.url}")).To(Equal("http://echo-voteconfig." + namespace + ".svc:8081"))
		expectAnswer(namespace, "voteconfig", "8081", Equal("[\"Tea\"]\n"))
	})
}

func documents() {
	run := func(test string) {
		output, err := exec.Command("go", "test", "-count=1", "-v", "-tags=e2e", "-run="+test+"$", "../docs").CombinedOutput()
		GinkgoWriter.Write(output) //nolint:errcheck // GinkgoWriter returns no errors.
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
	It("prints the documented output for each command of the tutorial", func() { run("TestTutorial") })
	It("accepts each command of the other pages", func() { run("TestPages") })
}

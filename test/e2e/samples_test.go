//go:build e2e

package e2e

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

func samples() {
	const namespace = "samples-e2e"

	BeforeAll(func() {
		NewNamespace(namespace)
		Kubectl("-n", namespace, "apply", "-k", filepath.Join("..", "..", "config", "samples"))
	})

	DescribeTable("makes the Echo ready, and it responds",
		func(echo, port string, status int, contentType, text string) {
			WaitReady(namespace, echo)
			header := ExpectResponse(namespace, echo, port, status, ContainSubstring(text))
			Expect(header.Get("Content-Type")).To(HavePrefix(contentType))
		},
		Entry("for the smallest sample", "hello", "80", http.StatusOK, "text/plain", "xin chao operator"),
		Entry("for the sample with a custom image", "webapp", "80", http.StatusOK, "", "nginx"),
		Entry("for the website", "website", "80", http.StatusOK, "text/html", "<title>My Personal Blog</title>"),
		Entry("for the options of a vote", "voteconfig", "80", http.StatusOK, "text/plain", `"Cats"`),
		Entry("for the canary whose response is verified", "verified-canary", "80", http.StatusOK, "text/plain", "alive\n"),
		Entry("for go-httpbin, which is ready by its readiness path", "httpbin", "80", http.StatusOK, "", "go-httpbin"),
		Entry("for the maintenance page", "maintenance-page", "80", http.StatusServiceUnavailable, "text/html", "<title>Back soon</title>"),
		Entry("for the default backend", "default-backend", "80", http.StatusNotFound, "text/plain", "There is no page at this address.\n"),
		Entry("for the redirect", "redirect", "80", http.StatusPermanentRedirect, "text/plain", "This service has moved"),
		Entry("for security.txt", "security-txt", "80", http.StatusOK, "text/plain; charset=utf-8", "Contact: mailto:security@example.com\n"),
	)

	DescribeTable("sends the declared headers",
		func(echo string, status int, name, value string) {
			WaitReady(namespace, echo)
			Expect(ExpectResponse(namespace, echo, "80", status, Not(BeEmpty())).Values(name)).To(ContainElement(value)) // The API server adds some.
		},
		Entry("of the redirect", "redirect", http.StatusPermanentRedirect, "Location", "https://www.example.com/"),
		Entry("of security.txt", "security-txt", http.StatusOK, "Content-Type", "text/plain; charset=utf-8"),
		Entry("of the maintenance page", "maintenance-page", http.StatusServiceUnavailable, "Retry-After", "3600"),
		Entry("that a page with status 503 has by default", "maintenance-page", http.StatusServiceUnavailable, "Cache-Control", "no-store"),
	)

	It("runs the sample with a custom command, whose log contains its banner", func() {
		WaitReady(namespace, "myapp")
		Expect(Kubectl("-n", namespace, "logs", "deployment/echo-myapp")).To(Equal("This pod was created by the Echo operator 🚀\n"))
	})

	It("updates the URL in the status after an edit of the port", func() {
		PatchEcho(namespace, "voteconfig", `{"message":"[\"Tea\"]","port":8081}`)
		WaitReady(namespace, "voteconfig")
		Expect(Get(namespace, "voteconfig", &echov1.Echo{}).Status.URL).To(Equal("http://echo-voteconfig." + namespace + ".svc:8081"))
		ExpectBody(namespace, "voteconfig", "8081", Equal("[\"Tea\"]\n"))
	})
}

// documents runs the tutorial, which changes only its own namespace.
func documents() {
	It("prints the documented output for each command of the tutorial", func() { RunDocuments("../docs", "TestTutorial") })
}

// pages runs the commands of the other pages, some of which change or impersonate the operator.
func pages() {
	It("accepts each command of the other pages", slow, func() { RunDocuments("../docs", "TestPages") })
}

func scorecard() {
	It("passes every test of the scorecard under restricted Pod Security", func() {
		const namespace = "scorecard-e2e"
		NewNamespace(namespace)
		Kubectl("-n", namespace, "create", "serviceaccount", "scorecard")
		Kubectl("-n", namespace, "apply", "-f", "../../config/scorecard/role.yaml")
		Kubectl("-n", namespace, "create", "rolebinding", "scorecard", "--role=echo-operator-scorecard", "--serviceaccount="+namespace+":scorecard")

		// The bundle of the image: it names the images of the scorecard's tests in the same registry.
		command := exec.Command("operator-sdk", "scorecard", "../../bin/package/bundle", "--namespace", namespace,
			"--service-account", "scorecard", "--pod-security", "restricted", "--wait-time", "3m", "--output", "json",
			// The default is a digest, which an offline cluster cannot pull.
			"--untar-image", "quay.io/operator-framework/scorecard-untar:v1.42.2")
		output, err := command.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		// Six tests of the SDK, and three of config/scorecard.
		Expect(regexp.MustCompile(`"state":\s*"pass"`).FindAll(output, -1)).To(HaveLen(9), string(output))
		Expect(Kubectl("-n", namespace, "get", "echoes", "-o", "name")).To(BeEmpty(), "Echoes of the scorecard")
	})
}

//go:build e2e

package e2e

import (
	"bufio"
	"cmp"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

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
		Entry("for the sample with every field", "showcase", "8080", "<title>Every field</title>"),
		Entry("for the sample with a custom image", "webapp", "80", "nginx"),
		Entry("for the website", "website", "80", "<title>My Personal Blog</title>"),
		Entry("for the options of a vote", "voteconfig", "80", `"Cats"`),
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

	It("serves a page that a browser shows in the theme colour, with markup as text", func() {
		apply(namespace, echoManifest("page", map[string]any{
			"message": "<b>not bold</b>", "page": map[string]any{"title": "A <i>title</i>", "color": "#4CAF50"},
		}))
		waitReady(namespace, "page")
		url := "http://" + forward(namespace, "service/echo-page", "80")

		dom := browse("--dump-dom", url)
		Expect(dom).To(ContainSubstring("<title>A &lt;i&gt;title&lt;/i&gt;</title>"))
		Expect(dom).To(ContainSubstring("<main>&lt;b&gt;not bold&lt;/b&gt;</main>"))

		picture := filepath.Join(GinkgoT().TempDir(), "page.png")
		browse("--screenshot="+picture, url)
		file, err := os.Open(picture)
		Expect(err).NotTo(HaveOccurred())
		defer func() { Expect(file.Close()).To(Succeed()) }()
		pixels, err := png.Decode(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(color.RGBAModel.Convert(pixels.At(2, 2))).To(Equal(color.RGBA{R: 0x4C, G: 0xAF, B: 0x50, A: 0xFF}), "colour of the header")
	})
}

// forward forwards a local port to the object's port until the spec ends, and returns the local address.
func forward(namespace, object, port string) string {
	GinkgoHelper()
	command := exec.Command("kubectl", "-n", namespace, "port-forward", object, ":"+port)
	output, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(command.Process.Kill()).To(Succeed())
		_ = command.Wait() // The error of Wait is that of Kill.
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	Expect(address).NotTo(BeEmpty(), line)
	return address
}

// browse opens the URL in a browser without any background network access.
func browse(action, url string) string {
	GinkgoHelper()
	output, err := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--user-data-dir="+GinkgoT().TempDir(), action, url).Output()
	Expect(err).NotTo(HaveOccurred())
	return string(output)
}

func tutorial() {
	It("prints the documented output for each command", func() {
		output, err := exec.Command("go", "test", "-count=1", "-v", "-tags=e2e", "-run=TestTutorial$", "../docs").CombinedOutput()
		GinkgoWriter.Write(output) //nolint:errcheck // GinkgoWriter returns no errors.
		Expect(err).NotTo(HaveOccurred(), string(output))
	})
}

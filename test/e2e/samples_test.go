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

	DescribeTable("which become ready and answer",
		func(echo, port, part string) {
			waitReady(namespace, echo)
			expectAnswer(namespace, echo, port, ContainSubstring(part))
		},
		Entry("the smallest", "hello", "80", "xin chao operator"),
		Entry("every field", "showcase", "8080", "<title>Every field</title>"),
		Entry("a web application of one's own", "webapp", "80", "nginx"),
		Entry("a website", "website", "80", "<title>My Personal Blog</title>"),
		Entry("a vote's options", "voteconfig", "80", `"Cats"`),
	)

	It("which print a banner", func() {
		waitReady(namespace, "myapp")
		Expect(kubectl("-n", namespace, "logs", "deployment/echo-myapp")).To(Equal("This pod was created by the Echo operator 🚀\n"))
	})

	It("which tell in the status which dependents follow a change", func() {
		kubectl("-n", namespace, "patch", "echo", "voteconfig", "--type=merge", "-p", `{"spec":{"message":"[\"Tea\"]","port":8081}}`)
		kubectl("-n", namespace, "wait", "--for=jsonpath={.status.observedGeneration}=2", "echo/voteconfig", "--timeout=60s")
		waitReady(namespace, "voteconfig")
		Expect(kubectl("-n", namespace, "get", "echo", "voteconfig", "-o", "jsonpath={.status.url}")).To(Equal("http://echo-voteconfig." + namespace + ".svc:8081"))
		expectAnswer(namespace, "voteconfig", "8081", Equal("[\"Tea\"]\n"))
	})

	It("and a page in a browser, with markup as text", func() {
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
		Expect(color.RGBAModel.Convert(pixels.At(2, 2))).To(Equal(color.RGBA{R: 0x4C, G: 0xAF, B: 0x50, A: 0xFF}), "the header has the theme colour")
	})
}

// forward makes the object's port reachable from here, and returns at which address.
func forward(namespace, object, port string) string {
	GinkgoHelper()
	command := exec.Command("kubectl", "-n", namespace, "port-forward", object, ":"+port)
	output, err := command.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		Expect(command.Process.Kill()).To(Succeed())
		_ = command.Wait() // It was killed.
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	Expect(address).NotTo(BeEmpty(), line)
	return address
}

// browse opens the page in a browser that asks nothing else of the network.
func browse(what, url string) string {
	GinkgoHelper()
	output, err := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--user-data-dir="+GinkgoT().TempDir(), what, url).Output()
	Expect(err).NotTo(HaveOccurred())
	return string(output)
}

func tutorial() {
	It("command by command", func() {
		output, err := exec.Command("go", "test", "-count=1", "-v", "-tags=e2e", "-run=TestTutorial$", "../docs").CombinedOutput()
		GinkgoWriter.Write(output) //nolint:errcheck // It goes to a buffer.
		Expect(err).NotTo(HaveOccurred(), string(output))
	})
}

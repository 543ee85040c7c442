//go:build e2e

package olmv0

import (
	"os"
	"os/exec"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
)

// mirrorOnly makes containerd pull every image from the mirror: a path of the local cluster's
// registry that contains only what the spec copies.
const mirrorOnly = `server = "http://10.244.0.1:5000/v2/mirror"
override_path = true
[host."http://10.244.0.1:5000/v2/mirror"]
override_path = true
`

// hosts is containerd's configuration of registries.
const hosts = "/etc/containerd/certs.d/_default/hosts.toml"

var _ = Describe("On a disconnected cluster", Label("disconnected", "slow"), Serial, func() {
	It("this tree installs from a mirror that contains only its related images", func() {
		tree := catalog().Tree
		By("copying its related images, the catalog, and the images that OLM needs to read a catalog")
		registry, err := os.ReadFile(root + "/bin/cluster/registry")
		Expect(err).NotTo(HaveOccurred())
		source := "docker://" + strings.TrimSpace(string(registry)) + "/"
		digest := run("skopeo", "inspect", "--tls-verify=false", "--format={{.Digest}}", source+path(olm.Image)+":next")
		catalogImage := olm.Image + "@" + strings.TrimSpace(digest)
		images := append(catalog().RelatedImages(tree), catalogImage)
		args := Kubectl("-n", "olm", "get", "deployment", "catalog-operator", "-o", "jsonpath={.spec.template.spec.containers[0].args[*]}")
		for _, match := range regexp.MustCompile(`-(?:util-image|opmImage)=(\S+)`).FindAllStringSubmatch(args, -1) {
			images = append(images, match[1])
		}
		for _, image := range images {
			name, _, _ := strings.Cut(strings.ReplaceAll(path(image), "@", ":"), ":")
			tag := name + ":copy"
			if _, version, found := strings.Cut(image, ":v"); found {
				tag = name + ":v" + version
			}
			run("skopeo", "copy", "--quiet", "--all", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false",
				source+path(image), source+"mirror/"+tag)
		}

		By("configuring the mirror as the only registry of the node")
		before := run(root+"/bin/local-cluster", "exec", "--", "cat", hosts)
		writeHosts(mirrorOnly)
		DeferCleanup(writeHosts, before)

		serveCatalog("mirror", catalogImage)
		DeferCleanup(func() { Kubectl("-n", "olm", "delete", "catalogsource", "mirror") })
		installAlone("mirror", catalog().Channel("stable"), tree)
		NewNamespace("disconnected")
		Apply("disconnected", `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "hello"}, "spec": {"message": "mirrored"}}`)
		WaitReady("disconnected", "hello")
		ExpectBody("disconnected", "hello", "80", Equal("mirrored\n"))

		By("creating an Echo with an image that was not copied")
		Apply("disconnected", `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "absent"}, "spec": {
			"message": "m", "image": "docker.io/hashicorp/http-echo:1.0.0"}}`)
		Eventually(Condition("disconnected", "absent", "Ready")).Should(HavePrefix("False ImagePullFailed"))
	})
})

// path returns an image's name without the registry.
func path(image string) string {
	_, path, _ := strings.Cut(image, "/")
	return path
}

func writeHosts(text string) {
	GinkgoHelper()
	command := exec.Command(root+"/bin/local-cluster", "exec", "--", "sh", "-c", "cat >"+hosts)
	command.Stdin = strings.NewReader(text)
	output, err := command.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(output))
}

func run(name string, args ...string) string {
	GinkgoHelper()
	output, err := exec.Command(name, args...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s %v\n%s", name, args, output)
	return string(output)
}

//go:build e2e

// Package olmv0 tests Operator Lifecycle Manager: upgrades under load, every install mode, a broken release, alerts, a
// mirror, and an installation without OLM. It needs the local cluster, with the images of hack/catalog/test-catalogs.sh.
package olmv0

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
)

const (
	// operatorNamespace is the namespace of the specs that run alone: those with an operator that watches every namespace.
	operatorNamespace = "echo-operator-system"
	operator          = "deployment/echo-operator-controller-manager"
	root              = "../../.."
)

// catalog is read only after the check of the cluster: a clone without it must fail with the message of that check.
var catalog = sync.OnceValue(func() olm.Catalog {
	GinkgoHelper()
	catalog, err := olm.Read(root)
	Expect(err).NotTo(HaveOccurred())
	return catalog
})

func TestOLMV0(t *testing.T) {
	Run(t, root, "Operator upgraded by OLM", 2*time.Minute, "get subscriptions,installplans,csv --all-namespaces -o wide",
		"-n olm logs deployment/catalog-operator --tail=10", "-n olm logs deployment/olm-operator --tail=10")
}

var _ = SynchronizedBeforeSuite(func() {
	By("removing the remains of an earlier run and of the demo")
	(&installation{namespace: operatorNamespace}).remove()
	Kubectl("delete", "crd", "echoes.kkloud.io", "--ignore-not-found")
	serveCatalog("echo-operator", olm.Image+":served")
}, func() {})

var _ = SynchronizedAfterSuite(func() {}, func() { Kubectl("-n", "olm", "delete", "catalogsource", "echo-operator") })

// serveCatalog creates a CatalogSource with the catalog image, and waits until OLM has read it. OLM unpacks the image,
// unless its tag is "served": that image contains its own server.
func serveCatalog(name, image string) {
	GinkgoHelper()
	manifest, err := os.ReadFile(root + "/config/olm/catalogsource.yaml")
	Expect(err).NotTo(HaveOccurred())
	text := strings.Replace(string(manifest), "name: echo-operator", "name: "+name, 1)
	text = regexp.MustCompile(`image: .*`).ReplaceAllLiteralString(text, "image: "+image)
	if strings.HasSuffix(image, ":served") {
		var found bool
		text, _, found = strings.Cut(text, "    # The image contains only data")
		Expect(found).To(BeTrue(), "config/olm/catalogsource.yaml has no extractContent")
	}
	Kubectl("-n", "olm", "delete", "catalogsource", name, "--ignore-not-found")
	Apply("olm", text)
	Kubectl("-n", "olm", "wait", "catalogsource", name, "--for=jsonpath={.status.connectionState.lastObservedState}=READY", "--timeout=5m")
}

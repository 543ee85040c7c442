//go:build e2e

// Package olmv1 tests the operator as OLM v1 installs, upgrades and removes it: along every
// edge of the catalog. KUBECONFIG says on which cluster; it should be one that nobody needs.
package olmv1

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/catalog"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

const (
	operatorNamespace = "echo-operator-system"
	operator          = "deployment/echo-operator-controller-manager"
	crd               = "customresourcedefinition/echoes.kkloud.io"
)

var (
	// manifests are those that install the operator; catalogImage takes the place of the
	// catalog that they name, and catalogDir holds what is in it.
	manifests  = filepath.Join("..", "..", "..", cmp.Or(os.Getenv("OLM_V1_MANIFESTS"), "config/olm-v1"))
	catalogDir = filepath.Join("..", "..", "..", cmp.Or(os.Getenv("CATALOG_DIR"), "catalog/echo-operator"))

	catalogImage = os.Getenv("CATALOG_IMG")

	offer    catalog.Catalog
	released []releases.Release

	// hops is the table of what was walked.
	hops []string
)

func TestOLMV1(t *testing.T) {
	if err := testcluster.Check("../../.."); err != nil {
		t.Fatal(err)
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "The operator, installed by OLM v1")
}

var _ = BeforeSuite(func() {
	output, err := TryKubectl("", "get", "crd", "clusterextensions.olm.operatorframework.io")
	Expect(err).NotTo(HaveOccurred(), "this cluster has no OLM v1; in the local one, make cluster-olm-v1 installs it\n%s", output)

	By("removing what an earlier run, the demo, or the suite of OLM v0 has left")
	remove()

	By("preparing catalog and installer")
	for _, file := range []string{"namespace.yaml", "installer.yaml", "clustercatalog.yaml"} {
		Kubectl("apply", "-f", filepath.Join(manifests, file))
	}
	if catalogImage != "" {
		Kubectl("patch", "clustercatalog", "echo-operator", "--type=merge", "-p", `{"spec":{"source":{"image":{"ref":"`+catalogImage+`"}}}}`)
	}
	Kubectl("wait", "--for=condition=Serving", "clustercatalog/echo-operator", "--timeout=60s")
	DeferCleanup(remove)
})

var _ = AfterSuite(func() { PrintHops(hops) })

// remove removes everything that installing the operator brings, by OLM v1 or v0, and all Echoes.
func remove() {
	Kubectl("delete", "clusterextension", "echo-operator", "--ignore-not-found")
	Kubectl("delete", "-k", manifests, "--ignore-not-found")
	Kubectl("delete", crd, "--ignore-not-found")
	// OLM v0 leaves these behind, and OLM v1 takes nobody's over.
	Kubectl("delete", "clusterroles", "-l", "app.kubernetes.io/name=echo-operator,olm.managed=true")
}

var _ = ReportAfterSuite("what the cluster says after a failure", func(report Report) {
	if report.SuiteSucceeded {
		return
	}
	for _, args := range [][]string{
		{"get", "clustercatalogs,clusterextensions", "-o", "yaml"},
		{"get", "echoes,pods", "--all-namespaces", "-o", "wide"},
		{"-n", "olmv1-system", "logs", "deployment/operator-controller", "--tail=30"},
	} {
		output, _ := TryKubectl("", args...)
		GinkgoWriter.Printf("$ kubectl %v\n%s\n", args, output)
	}
})

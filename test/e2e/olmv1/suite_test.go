//go:build e2e

// Package olmv1 tests installations, upgrades along every edge of the catalog, and removals by
// OLM v1. Use a disposable cluster: the suite deletes the CRD and all Echoes.
package olmv1

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

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
	// manifests is the folder of the manifests that install the operator. catalogImage replaces
	// the catalog image that they name, and catalogDir contains the same catalog.
	manifests  = filepath.Join("..", "..", "..", cmp.Or(os.Getenv("OLM_V1_MANIFESTS"), "config/olm-v1"))
	catalogDir = filepath.Join("..", "..", "..", cmp.Or(os.Getenv("CATALOG_DIR"), "bin/catalogs/next/echo-operator"))

	catalogImage = os.Getenv("CATALOG_IMG")

	offer catalog.Catalog

	// upgrades are rows of the table that PrintUpgrades prints.
	upgrades []string
)

func TestOLMV1(t *testing.T) {
	if err := testcluster.Check("../../.."); err != nil {
		t.Fatal(err)
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	RunSpecs(t, "Operator installed by OLM v1")
}

var _ = BeforeSuite(func() {
	output, err := TryKubectl("", "get", "crd", "clusterextensions.olm.operatorframework.io")
	Expect(err).NotTo(HaveOccurred(), "OLM v1 is not installed; make cluster-olm-v1 adds it to the local cluster\n%s", output)

	By("removing the remains of an earlier run, of the demo, and of the suite of OLM v0")
	remove()

	By("creating the catalog and the installer's service account")
	for _, file := range []string{"namespace.yaml", "installer.yaml", "clustercatalog.yaml"} {
		Kubectl("apply", "-f", filepath.Join(manifests, file))
	}
	if catalogImage != "" {
		setCatalogImage(catalogImage)
	}
	Kubectl("wait", "--for=condition=Serving", "clustercatalog/echo-operator", "--timeout=60s")
	DeferCleanup(remove)
})

var _ = AfterSuite(func() { PrintUpgrades(upgrades) })

// remove deletes everything that an installation by OLM v1 or v0 creates, and all Echoes.
func remove() {
	Kubectl("delete", "clusterextension", "echo-operator", "--ignore-not-found")
	Kubectl("delete", "-k", manifests, "--ignore-not-found")
	Kubectl("delete", crd, "--ignore-not-found")
	// OLM v0 does not delete these, and OLM v1 does not adopt them.
	Kubectl("delete", "clusterroles", "-l", "app.kubernetes.io/name=echo-operator,olm.managed=true")
}

var _ = ReportAfterSuite("state of the cluster after a failure", func(report Report) {
	if report.SuiteSucceeded {
		return
	}
	for _, args := range [][]string{
		{"get", "clustercatalogs,clusterextensions", "-o", "yaml"},
		{"get", "echoes,pods", "--all-namespaces", "-o", "wide"},
		{"-n", "olmv1-system", "logs", "deployment/operator-controller-controller-manager", "--tail=30"},
	} {
		output, _ := TryKubectl("", args...)
		GinkgoWriter.Printf("$ kubectl %v\n%s\n", args, output)
	}
})

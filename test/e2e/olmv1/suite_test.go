//go:build e2e

// Package olmv1 tests upgrades and removals by OLM v1. It needs the local cluster, with the images of
// hack/catalog/test-catalogs.sh.
package olmv1

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
)

const (
	operatorNamespace = "echo-operator-system"
	operator          = "deployment/echo-operator-controller-manager"
	olmController     = "deployment/operator-controller-controller-manager"
	crd               = "customresourcedefinition/echoes.kkloud.io"
	installer         = "echo-operator-installer"
	root              = "../../.."
	manifests         = root + "/config/olm-v1/"
)

var catalog olm.Catalog

func TestOLMV1(t *testing.T) {
	Run(t, root, "Operator installed by OLM v1", 4*time.Minute, "get clustercatalogs,clusterextensions -o yaml",
		"-n olmv1-system logs "+olmController+" --tail=30")
}

var _ = BeforeSuite(func() {
	output, err := TryKubectl("", "get", "crd", "clusterextensions.olm.operatorframework.io")
	Expect(err).NotTo(HaveOccurred(), "OLM v1 is not installed; make cluster-olm-v1 adds it to the local cluster\n%s", output)
	catalog, err = olm.Read(root)
	Expect(err).NotTo(HaveOccurred())

	By("removing the remains of an earlier run, of the demo, and of the suite of OLM v0")
	remove()
	DeferCleanup(remove)

	By("creating the catalog, and the service account that OLM v1.2.0 needs")
	Kubectl("apply", "-f", manifests+"namespace.yaml")
	Kubectl("-n", operatorNamespace, "create", "serviceaccount", "installer")
	Kubectl("create", "clusterrolebinding", installer, "--clusterrole=cluster-admin", "--serviceaccount="+operatorNamespace+":installer")
	Apply("", Kubectl("patch", "--local", "-f", manifests+"clustercatalog.yaml", "-o", "json", "--type=merge",
		"-p", `{"spec":{"source":{"image":{"ref":"`+olm.Image+`:next"}}}}`))
	Kubectl("wait", "--for=condition=Serving", "clustercatalog/echo-operator", "--timeout=3m")
})

// remove deletes everything that an installation by OLM v1 or v0 creates, and all Echoes.
func remove() {
	Kubectl("delete", "clusterextension", "echo-operator", "--ignore-not-found")
	Kubectl("delete", "-k", manifests, "--ignore-not-found")
	Kubectl("delete", "clusterrolebinding", installer, "--ignore-not-found")
	Kubectl("delete", crd, "--ignore-not-found")
	// OLM v0 does not delete these, and OLM v1 does not adopt them.
	Kubectl("delete", "clusterroles", "-l", "app.kubernetes.io/name=echo-operator,olm.managed=true")
}

//go:build e2e

// Package olmv0 tests upgrades by Operator Lifecycle Manager: every edge of the catalog, every
// install mode, the replacement of a broken release, and a mirror. It needs the local cluster,
// whose registry contains the images of every release.
package olmv0

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

const (
	operatorNamespace = "echo-operator-system"
	operator          = "deployment/echo-operator-controller-manager"
	crd               = "customresourcedefinition/echoes.kkloud.io"
	root              = "../../.."
)

func TestOLMV0(t *testing.T) {
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(500 * time.Millisecond)
	RunSpecs(t, "Operator upgraded by OLM")
}

// upgrades are rows of the table that PrintUpgrades prints.
var upgrades []string

var _ = BeforeSuite(func() {
	By("removing the remains of an earlier run and of the demo")
	remove()
	Kubectl("delete", crd, "--ignore-not-found")
})

var _ = AfterSuite(func() { PrintUpgrades(upgrades) })

// After a failure, print the state of the cluster.
var _ = JustAfterEach(func() {
	if !CurrentSpecReport().Failed() {
		return
	}
	for _, args := range [][]string{
		{"get", "echoes,pods", "--all-namespaces", "-o", "wide"},
		{"-n", operatorNamespace, "get", "subscriptions,installplans,csv,operatorconditions", "-o", "wide"},
		{"-n", operatorNamespace, "logs", operator, "--tail=30"},
		{"-n", "olm", "logs", "deployment/catalog-operator", "--tail=10"},
		{"-n", "olm", "logs", "deployment/olm-operator", "--tail=10"},
	} {
		output, _ := TryKubectl("", args...)
		GinkgoWriter.Printf("$ kubectl %s\n%s\n", strings.Join(args, " "), output)
	}
})

// serveCatalog creates a CatalogSource with the catalog image, and waits until OLM has read it.
// OLM unpacks the image, except for servedCatalog, which contains its own server.
func serveCatalog(image string) {
	GinkgoHelper()
	manifest, err := os.ReadFile(root + "/config/olm/catalogsource.yaml")
	Expect(err).NotTo(HaveOccurred())
	text := regexp.MustCompile(`image: .*`).ReplaceAllLiteralString(string(manifest), "image: "+image)
	container := "initContainers"
	if image == servedCatalog {
		var found bool
		text, _, found = strings.Cut(text, "    extractContent:")
		Expect(found).To(BeTrue(), "config/olm/catalogsource.yaml has no extractContent")
		container = "containers"
	}
	Apply("olm", text)
	DeferCleanup(func() { Kubectl("-n", "olm", "delete", "catalogsource", "echo-operator", "--ignore-not-found") })
	Eventually(func() string {
		return Kubectl("-n", "olm", "get", "pods", "-l", "olm.catalogSource=echo-operator", "-o",
			"jsonpath={.items[*].spec."+container+"[*].image} {.items[*].status.containerStatuses[*].ready}")
	}).Should(SatisfyAll(ContainSubstring(image), HaveSuffix(" true")))
	Eventually(func() string {
		return Kubectl("-n", "olm", "get", "catalogsource", "echo-operator", "-o", "jsonpath={.status.connectionState.lastObservedState}")
	}).Should(Equal("READY"))
}

// subscribe creates the operator's namespace, an OperatorGroup for the target namespaces or for all
// namespaces, and a Subscription. With a version, OLM installs that version, and every upgrade
// needs an approval.
func subscribe(channel, version string, targets ...string) {
	GinkgoHelper()
	approval, starting := "Automatic", ""
	if version != "" {
		approval, starting = "Manual", csvOf(version)
	}
	targetNamespaces := ""
	if len(targets) > 0 {
		targetNamespaces = `"targetNamespaces": ["` + strings.Join(targets, `","`) + `"]`
	}
	Kubectl("apply", "-f", root+"/config/olm/namespace.yaml")
	Apply(operatorNamespace, fmt.Sprintf(`{"apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
		"metadata": {"name": "echo-operator"}, "spec": {%s}}`, targetNamespaces))
	Apply(operatorNamespace, fmt.Sprintf(`{"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
		"metadata": {"name": "echo-operator"}, "spec": {"name": "echo-operator", "channel": %q, "source": "echo-operator",
		"sourceNamespace": "olm", "installPlanApproval": %q, "startingCSV": %q}}`, channel, approval, starting))
	DeferCleanup(remove)
	if version != "" {
		approve(version)
	}
}

// remove deletes the operator, and keeps the CRD and all Echoes.
func remove() {
	GinkgoHelper()
	Kubectl("delete", "namespace", operatorNamespace, "--ignore-not-found")
	Kubectl("delete", "clusterroles,clusterrolebindings", "-l", "olm.owner.namespace="+operatorNamespace)
}

func csvOf(version string) string { return "echo-operator.v" + version }

// approve waits until OLM proposes the version, and approves the InstallPlan.
func approve(version string) {
	GinkgoHelper()
	var plan string
	Eventually(func() string {
		requeue()
		plan = Kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installPlanRef.name}")
		if plan == "" {
			return "no InstallPlan"
		}
		return Kubectl("-n", operatorNamespace, "get", "installplan", plan, "-o", "jsonpath={.spec.clusterServiceVersionNames[*]} {.spec.approved}")
	}, "5m").Should(Equal(csvOf(version) + " false"))
	Kubectl("-n", operatorNamespace, "patch", "installplan", plan, "--type=merge", "-p", `{"spec":{"approved":true}}`)
}

// awaitSucceeded waits until the version is installed.
func awaitSucceeded(version string) {
	GinkgoHelper()
	Eventually(func() string {
		requeue()
		return phase(version)
	}, "5m").Should(Equal(succeeded))
}

// requeuedAt is the time of the last requeue.
var requeuedAt time.Time

// requeue makes OLM reconcile the Subscription, at most every 20 seconds. OLM treats some transient
// errors during an upgrade as final, for example while two versions exist, and would retry only
// after minutes.
func requeue() {
	if time.Since(requeuedAt) < 20*time.Second {
		return
	}
	requeuedAt = time.Now()
	Kubectl("-n", operatorNamespace, "annotate", "subscription", "echo-operator", "--overwrite", "requeued-at="+requeuedAt.Format("150405"))
}

// phase returns phase and reason of a ClusterServiceVersion, or "absent".
func phase(version string) string {
	output, err := TryKubectl("", "-n", operatorNamespace, "get", "csv", csvOf(version), "-o", "jsonpath={.status.phase} {.status.reason}")
	if err != nil {
		return "absent"
	}
	return output
}

const succeeded = "Succeeded InstallSucceeded"

//go:build e2e

// Package olmv0 tests the operator as Operator Lifecycle Manager upgrades it: along every
// edge of the catalog, in every install mode, out of a broken release, and from a mirror. It
// runs on the local cluster, whose registry holds the images of every release.
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
	RunSpecs(t, "The operator, upgraded by OLM")
}

// hops is the table of what was walked.
var hops []string

var _ = BeforeSuite(func() {
	By("removing what an earlier run, or the demo, has left")
	remove()
	Kubectl("delete", crd, "--ignore-not-found")
})

var _ = AfterSuite(func() { PrintHops(hops) })

// What the cluster says after a failure.
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

// serveCatalog makes a catalog image the operator's CatalogSource, and waits until OLM has
// read it. OLM unpacks the image, unless it serves itself.
func serveCatalog(image string) {
	GinkgoHelper()
	manifest, err := os.ReadFile(root + "/config/olm/catalogsource.yaml")
	Expect(err).NotTo(HaveOccurred())
	text := regexp.MustCompile(`image: .*`).ReplaceAllLiteralString(string(manifest), "image: "+image)
	container := "initContainers"
	if image == servedCatalog {
		text = regexp.MustCompile(`(?s) +# The image holds.*`).ReplaceAllLiteralString(text, "")
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

// subscribe makes the operator's namespace with an OperatorGroup for the namespaces, or for
// all of them, and a Subscription. With a version that one is installed, and every upgrade
// waits for an approval.
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

// remove takes the operator away and leaves Echoes and their definition.
func remove() {
	GinkgoHelper()
	Kubectl("delete", "namespace", operatorNamespace, "--ignore-not-found")
	Kubectl("delete", "clusterroles,clusterrolebindings", "-l", "olm.owner.namespace="+operatorNamespace)
}

func csvOf(version string) string { return "echo-operator.v" + version }

// approve waits until OLM proposes the version, and lets it go on.
func approve(version string) {
	GinkgoHelper()
	var plan string
	Eventually(func() string {
		lookAgain()
		plan = Kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installPlanRef.name}")
		if plan == "" {
			return "no plan yet"
		}
		return Kubectl("-n", operatorNamespace, "get", "installplan", plan, "-o", "jsonpath={.spec.clusterServiceVersionNames[*]} {.spec.approved}")
	}, "5m").Should(Equal(csvOf(version) + " false"))
	Kubectl("-n", operatorNamespace, "patch", "installplan", plan, "--type=merge", "-p", `{"spec":{"approved":true}}`)
}

// awaitSucceeded waits until the version is installed.
func awaitSucceeded(version string) {
	GinkgoHelper()
	Eventually(func() string {
		lookAgain()
		return phase(version)
	}, "5m").Should(Equal(succeeded))
}

// lookedAgain is when the Subscription was last changed for OLM to look at it.
var lookedAgain time.Time

// lookAgain makes OLM look at the Subscription, every 20 seconds at the most. A hitch in the
// middle of an upgrade, as when two versions are there at once, counts as final for OLM: by
// itself it would look again only after minutes.
func lookAgain() {
	if time.Since(lookedAgain) < 20*time.Second {
		return
	}
	lookedAgain = time.Now()
	Kubectl("-n", operatorNamespace, "annotate", "subscription", "echo-operator", "--overwrite", "look-again="+lookedAgain.Format("150405"))
}

// phase returns the phase of a ClusterServiceVersion, and its reason.
func phase(version string) string {
	output, err := TryKubectl("", "-n", operatorNamespace, "get", "csv", csvOf(version), "-o", "jsonpath={.status.phase} {.status.reason}")
	if err != nil {
		return "absent"
	}
	return output
}

const succeeded = "Succeeded InstallSucceeded"

//go:build e2e

// Package e2e tests the operator as its users have it: installed by Operator Lifecycle
// Manager, on a real cluster, with real pods. KUBECONFIG says which; it should be one that
// nobody needs, as the operator is removed in the end.
package e2e

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

const (
	operatorNamespace = "echo-operator-system"
	operatorAccount   = "system:serviceaccount:echo-operator-system:echo-operator-controller-manager"
)

// olmManifests is where the manifests are that install the operator.
var olmManifests = filepath.Join("..", "..", cmp.Or(os.Getenv("OLM_MANIFESTS"), "config/olm"))

func TestEndToEnd(t *testing.T) {
	if err := testcluster.Check("../.."); err != nil {
		t.Fatal(err)
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "The operator, installed by OLM")
}

var _ = BeforeSuite(func() {
	By("removing what an earlier run, or the demo, has left")
	removeOperator()

	By("installing the operator by a Subscription")
	kubectl("apply", "-f", filepath.Join(olmManifests, "catalogsource.yaml"))
	Eventually(func() string {
		return kubectl("-n", "olm", "get", "catalogsource", "echo-operator", "-o", "jsonpath={.status.connectionState.lastObservedState}")
	}).Should(Equal("READY"))
	kubectl("apply", "-k", olmManifests)
	Eventually(installedPhase).Should(Equal("Succeeded"))
	startQuietTime()
	startFailures()
})

// The specs run in this order: the last of them take the operator away.
var _ = Describe("Installed by OLM, the operator", Ordered, ContinueOnFailure, func() {
	Describe("tells the seed's story", seedStory)
	Describe("answers messages", messages)
	Describe("leaves foreign objects alone", foreignObjects)
	Describe("runs the samples", samples)
	Describe("does what the tutorial shows", tutorial)
	Describe("comes in a package", scorecard)
	Describe("runs under a standard", podSecurity)
	Describe("serves metrics", metrics)
	Describe("changes what is called all the time", requests)
	Describe("tells of an Echo", failures)
	Describe("costs nothing when all is quiet", quiet)
	Describe("is replaced", recovery)
	Describe("can go", removal)
})

var _ = ReportAfterSuite("what the cluster says after a failure", func(report Report) {
	if report.SuiteSucceeded {
		return
	}
	for _, args := range [][]string{
		{"get", "echoes,pods", "--all-namespaces", "-o", "wide"},
		{"-n", operatorNamespace, "get", "subscriptions,installplans,csv"},
		{"-n", operatorNamespace, "logs", "deployment/echo-operator-controller-manager", "--tail=50"},
	} {
		output, _ := tryKubectl("", args...)
		GinkgoWriter.Printf("$ kubectl %s\n%s\n", strings.Join(args, " "), output)
	}
})

// removeOperator removes everything that installing the operator brings, also what is there
// only in part. It leaves the Echoes.
func removeOperator() {
	kubectl("delete", "-k", olmManifests, "--ignore-not-found")
	kubectl("delete", "-f", filepath.Join(olmManifests, "catalogsource.yaml"), "--ignore-not-found")
}

func installedPhase() string {
	csv := kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installedCSV}")
	if csv == "" {
		return "not installed yet"
	}
	phase, _ := tryKubectl("", "-n", operatorNamespace, "get", "csv", csv, "-o", "jsonpath={.status.phase}")
	return phase
}

// The helpers by shorter names.
var (
	kubectl      = cluster.Kubectl
	tryKubectl   = cluster.TryKubectl
	apply        = cluster.Apply
	newNamespace = cluster.NewNamespace
	waitReady    = cluster.WaitReady
	expectAnswer = cluster.ExpectAnswer
)

//go:build e2e

// Package e2e tests the operator as its users run it: installed by Operator Lifecycle Manager, on
// a cluster with real pods. Use a disposable cluster: the suite uninstalls the operator and
// deletes the CRD at the end.
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

// olmManifests is the folder of the manifests that install the operator.
var olmManifests = filepath.Join("..", "..", cmp.Or(os.Getenv("OLM_MANIFESTS"), "config/olm"))

// sampled is the label of specs that `make test` runs only for some commits.
var sampled = Label("sampled")

func TestEndToEnd(t *testing.T) {
	if err := testcluster.Check("../.."); err != nil {
		t.Fatal(err)
	}
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(time.Second)
	RunSpecs(t, "Operator installed by OLM")
}

var _ = BeforeSuite(func() {
	By("removing the remains of an earlier run and of the demo")
	removeOperator()

	By("installing the operator by a Subscription")
	kubectl("apply", "-f", filepath.Join(olmManifests, "catalogsource.yaml"))
	Eventually(func() string {
		return kubectl("-n", "olm", "get", "catalogsource", "echo-operator", "-o", "jsonpath={.status.connectionState.lastObservedState}")
	}).Should(Equal("READY"))
	kubectl("apply", "-k", olmManifests)
	Eventually(installedPhase).Should(Equal("Succeeded"))
	startSteadyState()
	startFailures()
})

// The specs run in this order: the last ones remove the operator.
var _ = Describe("The operator", Ordered, ContinueOnFailure, func() {
	Describe("during the life of an Echo", lifecycle)
	Describe("given an Echo", messages)
	Describe("given an object that the Echo does not control", conflicts)
	Describe("given the samples", samples)
	Describe("serves a page", sampled, Label("page"), pages)
	Describe("given pod settings", nodes)
	Describe("from its bundle", sampled, Label("scorecard"), scorecard)
	Describe("under Pod Security", podSecurity)
	Describe("given pods that are admitted as on OpenShift", Label("openshift"), openShift)
	Describe("on its metrics endpoint", metrics)
	Describe("while clients request an Echo", Label("requests"), requests)
	Describe("given a Gateway", Label("gateway"), gatewayRoutes)
	Describe("through a Gateway", Label("gateway"), gatewayAnswers)
	Describe("given an Echo that fails", failures)
	Describe("in steady state", sampled, Label("steady-state"), steadyState)
	// A runbook impersonates the operator, whose requests the steady state counts.
	Describe("given the documents", sampled, Label("documents"), documents)
	// These specs stop parts of the cluster that the verified Echo in steady state depends on.
	Describe("given an Echo whose answer is verified", Label("verification"), verification)
	Describe("given many Echoes whose answers are verified", Label("long"), longVerification)
	Describe("as the leader", Label("failover"), failover)
	Describe("during its removal", removal)
})

var _ = ReportAfterSuite("state of the cluster after a failure", func(report Report) {
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

// removeOperator deletes everything that an installation creates, complete or not. It keeps the Echoes.
func removeOperator() {
	kubectl("delete", "-k", olmManifests, "--ignore-not-found")
	kubectl("delete", "-f", filepath.Join(olmManifests, "catalogsource.yaml"), "--ignore-not-found")
}

func installedPhase() string {
	csv := kubectl("-n", operatorNamespace, "get", "subscription", "echo-operator", "-o", "jsonpath={.status.installedCSV}")
	if csv == "" {
		return "no installedCSV"
	}
	phase, _ := tryKubectl("", "-n", operatorNamespace, "get", "csv", csv, "-o", "jsonpath={.status.phase}")
	return phase
}

// Functions of the package cluster.
var (
	kubectl      = cluster.Kubectl
	tryKubectl   = cluster.TryKubectl
	apply        = cluster.Apply
	newNamespace = cluster.NewNamespace
	waitReady    = cluster.WaitReady
	expectAnswer = cluster.ExpectAnswer
	forward      = cluster.Forward
)

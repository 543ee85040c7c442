//go:build e2e

// Package e2e tests the operator as its users run it: installed by Operator Lifecycle Manager, on
// a cluster with real pods. Use a disposable cluster: the suite uninstalls the operator and
// deletes the CRD at the end.
//
// Specs without a label are the core. The others have the label gateway, verification (they break the responses of
// verified Echoes), or slow.
package e2e

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

const (
	operatorNamespace = "echo-operator-system"
	operatorName      = "echo-operator-controller-manager"
	operatorAccount   = "system:serviceaccount:echo-operator-system:echo-operator-controller-manager"

	operatorDeployment = "deployment/" + operatorName
	operatorPods       = "control-plane=controller-manager"
)

var (
	// olmManifests is the folder of the manifests that install the operator.
	olmManifests  = filepath.Join("..", "..", cmp.Or(os.Getenv("OLM_MANIFESTS"), "config/olm"))
	catalogSource = filepath.Join(olmManifests, "catalogsource.yaml")

	slow = Label("slow")
)

func TestEndToEnd(t *testing.T) {
	Run(t, "../..", "Operator installed by OLM", 2*time.Minute, "-n "+operatorNamespace+" get subscriptions,installplans,csv",
		"-n "+operatorNamespace+" logs "+operatorDeployment+" --tail=50")
}

// The first process installs the operator, and the others wait for it.
var _ = SynchronizedBeforeSuite(func() {
	By("removing the remains of an earlier run and of the demo")
	removeOperator()

	By("installing the operator by a Subscription")
	Kubectl("apply", "-f", catalogSource)
	Eventually(func() (string, error) {
		var source operatorsv1alpha1.CatalogSource
		err := Client().Get(context.Background(), client.ObjectKey{Namespace: "olm", Name: "echo-operator"}, &source)
		if err != nil || source.Status.GRPCConnectionState == nil {
			return "", err
		}
		return source.Status.GRPCConnectionState.LastObservedState, nil
	}, "5m").Should(Equal("READY")) // After a failure, OLM waits up to two minutes.
	Kubectl("apply", "-k", olmManifests)
	Eventually(func() (operatorsv1alpha1.ClusterServiceVersionPhase, error) {
		name, err := installedCSV()
		if err != nil || name == "" {
			return "", err
		}
		var csv operatorsv1alpha1.ClusterServiceVersion
		err = Client().Get(context.Background(), client.ObjectKey{Namespace: operatorNamespace, Name: name}, &csv)
		return csv.Status.Phase, client.IgnoreNotFound(err)
	}, "5m").Should(Equal(operatorsv1alpha1.CSVPhaseSucceeded))
}, func() {})

// Ginkgo shuffles top-level containers, and otherwise runs specs in the order of their containers in this file.
var _ = Describe("The operator", func() {
	// These run in parallel, the longest first. Each has namespaces of its own, and changes nothing else that another
	// one notices.
	Describe("given an obstacle", obstacles)
	Describe("given an Echo whose pods fail", failures)
	Describe("given the tutorial", documents)
	Describe("given the samples", Ordered, ContinueOnFailure, samples)
	Describe("given an Echo", echoes)
	Describe("given pods that are admitted as on OpenShift", openShift)
	Describe("as it is installed", security)
	Describe("given an Echo whose response is wrong", wrongResponse)
	Describe("from its bundle", slow, scorecard)

	// These change the operator, a node or objects of the whole cluster, or measure what others would disturb. So they
	// run after all others, one by one. The last one removes the operator.
	Describe("alone on the cluster", Serial, Ordered, ContinueOnFailure, func() {
		steadyState()
		nodes()
		Describe("while clients request an Echo", requests)
		Describe("given a Gateway", Label("gateway"), gateways)
		Describe("given an Echo whose response is verified", Label("verification"), verification)
		Describe("given many Echoes whose responses are verified", slow, longVerification)
		pages()
		failover()
		removal()
	})
})

// removeOperator deletes everything that an installation creates, complete or not. It keeps the Echoes.
func removeOperator() {
	GinkgoHelper()
	Kubectl("delete", "-k", olmManifests, "--ignore-not-found")
	Kubectl("delete", "-f", catalogSource, "--ignore-not-found")
}

// installedCSV returns the name of the ClusterServiceVersion that OLM has installed, or nothing.
func installedCSV() (string, error) {
	var subscription operatorsv1alpha1.Subscription
	err := Client().Get(context.Background(), client.ObjectKey{Namespace: operatorNamespace, Name: "echo-operator"}, &subscription)
	return subscription.Status.InstalledCSV, err
}

// awaitOperator waits until the newest pods of the operator are available.
func awaitOperator() {
	GinkgoHelper()
	Kubectl("-n", operatorNamespace, "rollout", "status", operatorDeployment, "--timeout=60s")
}

// requireLocalCluster skips the spec on every other cluster.
func requireLocalCluster(reason string) {
	GinkgoHelper()
	if !testcluster.IsLocal("../..") {
		Skip("This needs the local cluster: " + reason)
	}
}

//go:build e2e

package olmv0

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

var _ = Describe("Without OLM", Label("installer"), Serial, func() {
	It("the quick start of the README installs the operator, and make undeploy uninstalls it", func() {
		const namespace = "echo-demo"
		undeploy := func() { Kubectl("delete", "--ignore-not-found", "-k", root+"/config/default") } // As make does.
		removeNamespaces := func() { Kubectl("delete", "namespace", namespace, "op-demo", "--ignore-not-found") }
		removeNamespaces() // The demo leaves its own.
		DeferCleanup(removeNamespaces)
		DeferCleanup(undeploy)
		RunDocuments("../../docs", "TestQuickStart")

		undeploy()
		Kubectl("-n", namespace, "wait", "--for=delete", ChildResources(), "-l", "kkloud.io/echo", "--timeout=2m")
		Expect(Kubectl("get", "clusterroles,clusterrolebindings", "-l", "app.kubernetes.io/name=echo-operator", "-o", "name")).To(BeEmpty())
	})

	It("kubectl apply upgrades the predecessor to this tree, and does not affect Echoes", func() {
		apply := func(tree string) {
			Kubectl("apply", "--server-side", "-k", tree+"/config/default")
			Kubectl("-n", operatorNamespace, "rollout", "status", "--timeout=2m", operator)
		}
		DeferCleanup(func() { Kubectl("delete", "--ignore-not-found", "-k", root+"/config/default") })
		from, to := catalog().Predecessor, catalog().Tree
		apply(root + "/bin/catalogs/" + from + "/tree")
		w := workload.New("installer-upgrade")
		before := w.Observe()
		apply(root)
		w.ExerciseOperator()
		does, err := releases.Upgrade(from, to)
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry(from + " to " + to + ": requests | failed | restarted servers: " + w.ExpectUnaffected(before, does.RollsServers))
	})
})

//go:build e2e

package olmv0

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

var _ = Describe("An upgrade", Label("upgrade"), func() {
	It("from the predecessor to this tree waits for the end of a rollout, and does not affect Echoes", Serial, func() {
		from, to := catalog().Predecessor, catalog().Tree
		i := installAlone("echo-operator", catalog().Channel("candidate"), from)
		w := workload.New("upgrade-rollout")
		before := w.Observe()
		By("starting a rollout that cannot complete")
		CreateEcho(w.Namespace, "slow", echov1.EchoSpec{Message: "slow", Image: "registry.k8s.io/pause:3.10.1", ReadinessPath: "/"})
		Kubectl("-n", i.namespace, "wait", "operatorcondition", olm.CSV(from), "--for=condition=Upgradeable=False", "--timeout=2m")
		i.approve(to)
		Eventually(i.phase).WithArguments(to).Should(Equal("Pending OperatorConditionNotUpgradeable"))
		Consistently(i.phase, "15s").WithArguments(from).Should(HavePrefix("Replacing"))

		By("ending the rollout")
		Kubectl("-n", w.Namespace, "delete", "echo", "slow")
		i.awaitSucceeded(to)
		expectUpgraded(i, w, before, from, to)
	})

	It("skips versions after a change of the channel, also to the next major version", func() {
		from, to := catalog().Predecessor, catalog().Tree
		i := install("upgrade-channels", catalog().Channel("candidate"), from)
		w := workload.Start(i.namespace)
		for _, channel := range []string{catalog().Channel("stable"), catalog().NextChannel("stable")} {
			By("upgrading to " + to + " in " + channel)
			before := w.Observe()
			i.changeChannel(channel)
			i.upgrade(to)
			expectUpgraded(i, w, before, from, to)
			from, to = to, catalog().NextMajor
		}
	})

	It("to a broken release does not affect Echoes, and continues to the fixed release", func() {
		i, w, before := upgradeToBrokenRelease("upgrade-fixed")
		By("keeping the canary of docs/upgrade.md verified")
		Kubectl("-n", i.namespace, "apply", "-f", root+"/config/samples/verified-canary.yaml")
		Kubectl("-n", i.namespace, "wait", "--for=condition=Verified", "--timeout=3m", "echo/verified-canary")

		By("publishing the fixed release, and allowing OLM to replace a failed one")
		i.changeChannel("fixed")
		Kubectl("-n", i.namespace, "patch", "operatorgroup", "echo-operator", "--type=merge",
			"-p", `{"spec":{"upgradeStrategy":"TechPreviewUnsafeFailForward"}}`)
		i.upgrade(catalog().Fixed)
		i.expectNothingLeftOf(catalog().Broken)

		Kubectl("-n", i.namespace, "wait", "--for=condition=Verified", "--timeout=3m", "echo/verified-canary")
		rounds := workload.Rounds(i.namespace, "kkloud.io/verifies=verified-canary")
		Expect(workload.NotVerified(rounds)).To(BeEmpty(), "rounds without the declared response")
		Expect(Kubectl("-n", i.namespace, "get", "events", "--field-selector", "reason=VerificationFailed", "-o", "name")).To(BeEmpty())
		Kubectl("-n", i.namespace, "delete", "echo", "verified-canary")
		expectUpgraded(i, w, before, catalog().Tree, catalog().Fixed)
	})

	It("to a broken release is rolled back manually, as docs/upgrade.md describes", func() {
		i, w, before := upgradeToBrokenRelease("upgrade-rollback")
		Kubectl("-n", i.namespace, "delete", "subscription", "echo-operator")
		Kubectl("-n", i.namespace, "delete", "csv", "-l", "operators.coreos.com/echo-operator."+i.namespace)
		i.subscribe("broken", catalog().Tree)
		expectUpgraded(i, w, before, catalog().Broken, catalog().Tree)
	})
})

// expectUpgraded checks that the upgrade is complete, that the new operator reconciles, and that the upgrade did not
// affect the workload.
func expectUpgraded(i *installation, w workload.Workload, before workload.Snapshot, from, to string) {
	GinkgoHelper()
	does, err := releases.Upgrade(from, to)
	Expect(err).NotTo(HaveOccurred())
	i.expectNothingLeftOf(from)
	w.ExerciseOperator()
	Expect(Kubectl("get", "crd", "echoes.kkloud.io", "-o", "jsonpath={.status.storedVersions}")).To(Equal(`["v1"]`))
	AddReportEntry(fmt.Sprintf("%s to %s: requests | failed | restarted servers: %s", from, to, w.ExpectUnaffected(before, does.RollsServers)))
}

// upgradeToBrokenRelease installs this tree and upgrades it to the broken release, which fails. Until the end of
// the spec, a workload runs, which it observes before the upgrade.
func upgradeToBrokenRelease(namespace string) (*installation, workload.Workload, workload.Snapshot) {
	GinkgoHelper()
	i := install(namespace, "broken", catalog().Tree)
	w := workload.Start(namespace)
	before := w.Observe()
	i.approve(catalog().Broken)
	i.awaitFailed(catalog().Broken)
	Consistently(i.phase, "5s").WithArguments(catalog().Tree).Should(HavePrefix("Replacing"))
	By("checking that the old operator still reconciles")
	w.ExerciseOperator()
	w.ExpectUnaffected(before, releases.NoServers)
	return i, w, before
}

// awaitFailed waits until the progress deadline of 20 s makes the version Failed. If OLM changes the Deployment
// while its controller creates the new pod, the deadline does not start: docs/upgrade.md describes how to start it.
func (i *installation) awaitFailed(version string) {
	GinkgoHelper()
	start, started := time.Now(), false
	Eventually(func() (string, error) {
		if !started && time.Since(start) > time.Minute {
			AddReportEntry("The progress deadline did not start.")
			Kubectl("-n", i.namespace, "rollout", "pause", operator)
			time.Sleep(time.Second)
			Kubectl("-n", i.namespace, "rollout", "resume", operator)
			started = true
		}
		return i.phase(version)
	}, "4m").Should(HavePrefix("Failed "))
}

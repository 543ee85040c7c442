//go:build e2e

package olmv0

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver/v4"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/catalog"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

const (
	image         = "ghcr.io/kkloud-io/echo-operator-catalog:"
	servedCatalog = image + "served"
)

// next returns the catalog after the release of this tree's version. It is read only after the check
// of the cluster: a clone without catalogs must fail with the message of that check, too.
var next = sync.OnceValue(func() catalog.Catalog { return read("bin/catalogs/next/echo-operator") })

func read(name string) catalog.Catalog {
	read, err := catalog.Read(root + "/" + name)
	if err != nil {
		panic(err)
	}
	return read
}

// stepThrough installs a version and upgrades to the head of the channel, as OLM does: each step
// goes to the newest version that an edge leads to.
func stepThrough(channel catalog.Channel, start semver.Version) {
	GinkgoHelper()
	subscribe(channel.Name, start.String())
	awaitSucceeded(start.String())
	w := workload.New("steps-" + strings.ReplaceAll(channel.Name+"-"+start.String(), ".", "-"))
	for at := start; at.LT(channel.Head()); {
		to, found := channel.Next(at)
		Expect(found).To(BeTrue(), "an edge from %s towards the head of %s", at, channel.Name)
		By(fmt.Sprintf("upgrading from %s to %s", at, to))
		upgrade(channel.Name, at, to, w)
		at = to
	}
}

// newest returns the versions of the channel "test": the newest release, this tree, a broken version
// and its replacement.
func newest() (release, tree, broken, fixed string) {
	versions := read("bin/catalogs/fixed/echo-operator").Channel("test").Versions()
	return versions[0].String(), versions[1].String(), versions[2].String(), versions[3].String()
}

var _ = Describe("An upgrade", Label("upgrade"), func() {
	It("to this tree waits for the end of a rollout", func() {
		release, tree, _, _ := newest()
		does, err := releases.Upgrade(semver.MustParse(release), semver.MustParse(tree))
		Expect(err).NotTo(HaveOccurred())
		serveCatalog(image + "broken")
		subscribe("test", release)
		awaitSucceeded(release)
		w := workload.New("wait")
		before := w.Observe()
		By("starting a rollout that cannot complete")
		Apply(w.Namespace, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "slow"},
			"spec": {"message": "slow", "image": "registry.k8s.io/pause:3.10.1"}}`)
		Eventually(func() string {
			return Kubectl("-n", operatorNamespace, "get", "operatorcondition", csvOf(release), "-o",
				`jsonpath={.status.conditions[?(@.type=="Upgradeable")].status}`)
		}).Should(Equal("False"))

		approve(tree)
		Eventually(phase).WithArguments(tree).Should(Equal("Pending OperatorConditionNotUpgradeable"))
		Consistently(phase, "15s").WithArguments(release).Should(HavePrefix("Replacing"))
		Consistently(phase, "1s").WithArguments(tree).Should(HavePrefix("Pending"))

		By("ending the rollout")
		start := time.Now()
		Kubectl("-n", w.Namespace, "delete", "echo", "slow")
		awaitSucceeded(tree)
		AddReportEntry(fmt.Sprintf("OLM continued %.0f s after the end of the rollout", time.Since(start).Seconds()))
		expectNothingLeftOf(release)
		w.ExpectUnaffected(before, does.RollsServers)
	})

	It("is not needed after an installation from a catalog image with its own server", func() {
		serveCatalog(servedCatalog)
		channel := next().Channel("stable-v0")
		subscribe(channel.Name, "")
		awaitSucceeded(channel.Head().String())
	})

	It("keeps the canary of docs/upgrade.md verified, without a wrong answer", func() {
		_, tree, _, fixed := newest()
		serveCatalog(image + "fixed")
		subscribe("test", tree)
		awaitSucceeded(tree)
		const namespace = "olm-canary"
		NewNamespace(namespace)
		Kubectl("-n", namespace, "apply", "-f", root+"/config/samples/verified-canary.yaml")
		Kubectl("-n", namespace, "wait", "--for=condition=Verified", "--timeout=3m", "echo/verified-canary")
		before := workload.Rounds(namespace, "kkloud.io/verifies=verified-canary")

		approve(fixed)
		awaitSucceeded(fixed)
		Kubectl("-n", namespace, "wait", "--for=condition=Verified", "--timeout=3m", "echo/verified-canary")
		var after map[string]int
		Eventually(func() int { // The version has the same verifier, so that its pod is not replaced.
			after = workload.Rounds(namespace, "kkloud.io/verifies=verified-canary")
			return after["service/ok"] - before["service/ok"]
		}, "1m").Should(BeNumerically(">=", 5), "rounds during and after the upgrade")
		Expect(workload.NotVerified(after)).To(BeEmpty(), "rounds without the declared answer")
		Expect(Kubectl("-n", namespace, "get", "events", "--field-selector", "reason=VerificationFailed", "-o", "name")).To(BeEmpty())
		AddReportEntry(fmt.Sprintf("Rounds of the canary during and after the upgrade: %d, without the declared answer: 0", after["service/ok"]-before["service/ok"]))
	})

	It("to a broken release fails without effect on Echoes, and continues to the fixed release", func() {
		_, tree, broken, fixed := newest()
		w := workloadDuringBrokenUpgrade("broken")
		before := w.Observe()

		By("publishing the fixed release, and allowing OLM to replace a failed one")
		serveCatalog(image + "fixed")
		Kubectl("-n", operatorNamespace, "patch", "operatorgroup", "echo-operator", "--type=merge", "-p",
			`{"spec":{"upgradeStrategy":"TechPreviewUnsafeFailForward"}}`)
		approve(fixed)
		awaitSucceeded(fixed)
		for _, version := range []string{tree, broken} {
			expectNothingLeftOf(version)
		}
		w.ExpectUnaffected(before, releases.NoServers)
	})

	It("to a broken release is rolled back manually, as docs/upgrade.md describes", func() {
		_, tree, broken, _ := newest()
		w := workloadDuringBrokenUpgrade("rollback")
		before := w.Observe()

		Kubectl("-n", operatorNamespace, "delete", "subscription", "echo-operator")
		Kubectl("-n", operatorNamespace, "delete", "csv", "-l", "operators.coreos.com/echo-operator."+operatorNamespace)
		subscribe("test", tree)
		awaitSucceeded(tree)
		Expect(phase(broken)).To(Equal("absent"))
		w.ExerciseOperator()
		w.ExpectUnaffected(before, releases.NoServers)
	})

	It("follows a change of the channel, also to the next major version", func() {
		_, tree, _, _ := newest()
		from := next().Versions()[len(next().Versions())-2]
		serveCatalog(image + "major")
		subscribe("candidate-v0", from.String())
		awaitSucceeded(from.String())
		w := workload.New("channels")
		for _, to := range []struct{ channel, version string }{{"fast-v0", tree}, {"candidate-v1", "1.0.0"}, {"candidate-v1", "1.1.0"}} {
			By("upgrading to " + to.version + " in " + to.channel)
			Kubectl("-n", operatorNamespace, "patch", "subscription", "echo-operator", "--type=merge", "-p", `{"spec":{"channel":"`+to.channel+`"}}`)
			upgrade(to.channel, from, semver.MustParse(to.version), w)
			from = semver.MustParse(to.version)
		}
	})
})

// workloadDuringBrokenUpgrade installs this tree and upgrades it to the broken release, which fails. Until the end of
// the spec, a workload runs.
func workloadDuringBrokenUpgrade(namespace string) workload.Workload {
	GinkgoHelper()
	_, tree, broken, _ := newest()
	serveCatalog(image + "broken")
	subscribe("test", tree)
	awaitSucceeded(tree)
	w := workload.New(namespace)
	before := w.Observe()
	approve(broken)
	awaitFailed(broken)
	Consistently(phase, "5s").WithArguments(tree).Should(HavePrefix("Replacing"))
	By("checking that the old operator still reconciles")
	w.ExerciseOperator()
	w.ExpectUnaffected(before, releases.NoServers)
	return w
}

// awaitFailed waits until the progress deadline of 20 s makes the version Failed. If OLM changes the Deployment
// while its controller creates the new pod, the deadline does not start: docs/upgrade.md describes how to start it.
func awaitFailed(version string) {
	GinkgoHelper()
	start, started := time.Now(), false
	Eventually(func() string {
		status := Kubectl("-n", operatorNamespace, "get", operator, "-o",
			`jsonpath={.status.conditions[?(@.type=="Progressing")].reason} {.status.unavailableReplicas}`)
		if !started && status == "NewReplicaSetAvailable 1" && time.Since(start) > time.Minute {
			AddReportEntry("The progress deadline did not start.")
			Kubectl("-n", operatorNamespace, "rollout", "pause", operator)
			time.Sleep(time.Second)
			Kubectl("-n", operatorNamespace, "rollout", "resume", operator)
			started = true
		}
		return phase(version)
	}).WithTimeout(4 * time.Minute).Should(HavePrefix("Failed "))
}

var _ = Describe("Every upgrade to this tree", Label("every-edge"), func() {
	BeforeEach(func() { serveCatalog(image + "next") })

	tree := next().Versions()[len(next().Versions())-1]
	for _, channel := range next().Channels {
		for _, from := range channel.Versions() {
			if to, _ := channel.Next(from); to.Equals(tree) {
				It(fmt.Sprintf("in %s, from %s", channel.Name, from), func() { stepThrough(channel, from) })
			}
		}
	}
	It("in candidate-v0, from the oldest version through every other", Label("step-through"), func() {
		channel := next().Channel("candidate-v0")
		stepThrough(channel, channel.Versions()[0])
	})
})

//go:build e2e

package olmv0

import (
	"fmt"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/catalog"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/users"
)

const (
	image         = "ghcr.io/kkloud-io/echo-operator-catalog:"
	servedCatalog = image + "served"
)

func read(name string) catalog.Catalog {
	read, err := catalog.Read(root + "/" + name)
	if err != nil {
		panic(err)
	}
	return read
}

var released = func() []releases.Release {
	released, err := releases.Load()
	if err != nil {
		panic(err)
	}
	return released
}()

// walk installs a version and goes on to the head of the channel, as OLM does: every time
// as far as an edge leads.
func walk(channel catalog.Channel, start semver.Version) {
	GinkgoHelper()
	subscribe(channel.Name, start.String())
	awaitSucceeded(start.String())
	u := users.New("walk-" + strings.ReplaceAll(channel.Name+"-"+start.String(), ".", "-"))
	for at := start; at.LT(channel.Head()); {
		next, found := channel.Next(at)
		Expect(found).To(BeTrue(), "no way from %s to the head of %s", at, channel.Name)
		By(fmt.Sprintf("going from %s to %s", at, next))
		hop(channel.Name, at.String(), next.String(), releases.Rolls(released, at, next), u)
		at = next
	}
}

// newest returns the newest release, and after it the versions of the channel "test".
func newest() (release, tree, broken, fixed string) {
	versions := read("bin/catalogs/fixed/echo-operator").Channel("test").Versions()
	return versions[0].String(), versions[1].String(), versions[2].String(), versions[3].String()
}

var _ = Describe("An upgrade", Label("upgrade"), func() {
	It("to this tree waits for a rollout that is in flight", func() {
		release, tree, _, _ := newest()
		serveCatalog(image + "broken")
		subscribe("test", release)
		awaitSucceeded(release)
		u := users.New("wait")
		before := u.Look()
		By("beginning a rollout that does not end")
		Apply(u.Namespace, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "slow"},
			"spec": {"message": "slow", "image": "registry.k8s.io/pause:3.10.1"}}`)
		Eventually(func() string {
			return Kubectl("-n", operatorNamespace, "get", "operatorcondition", csvOf(release), "-o",
				`jsonpath={.status.conditions[?(@.type=="Upgradeable")].status}`)
		}).Should(Equal("False"))

		approve(tree)
		Eventually(phase).WithArguments(tree).Should(Equal("Pending OperatorConditionNotUpgradeable"))
		Consistently(phase, "15s").WithArguments(release).Should(HavePrefix("Replacing"))
		Consistently(phase, "1s").WithArguments(tree).Should(HavePrefix("Pending"))

		By("ending it")
		start := time.Now()
		Kubectl("-n", u.Namespace, "delete", "echo", "slow")
		awaitSucceeded(tree)
		AddReportEntry(fmt.Sprintf("OLM went on %.0f s after the end of the rollout", time.Since(start).Seconds()))
		checkNothingIsLeftOf(release)
		u.Check(before, false)
	})

	It("is not needed where the newest release comes from a catalog that serves itself", func() {
		serveCatalog(servedCatalog)
		channel := read("catalog/echo-operator").Channel("stable-v0")
		subscribe(channel.Name, "")
		awaitSucceeded(channel.Head().String())
	})

	It("to a broken release stops and harms nobody, and the fixed one follows", func() {
		_, tree, broken, fixed := newest()
		serveCatalog(image + "broken")
		subscribe("test", tree)
		awaitSucceeded(tree)
		u := users.New("broken")
		before := u.Look()

		approve(broken)
		// After the two minutes of the Deployment's progress deadline.
		Eventually(phase).WithArguments(broken).WithTimeout(4 * time.Minute).Should(HavePrefix("Failed "))
		Consistently(phase, "5s").WithArguments(tree).Should(HavePrefix("Replacing"))
		By("letting the old operator act, which is still there")
		u.TryOperator()

		By("publishing the release that takes its place, and allowing OLM to leave a failed one")
		serveCatalog(image + "fixed")
		Kubectl("-n", operatorNamespace, "patch", "operatorgroup", "echo-operator", "--type=merge", "-p",
			`{"spec":{"upgradeStrategy":"TechPreviewUnsafeFailForward"}}`)
		approve(fixed)
		awaitSucceeded(fixed)
		for _, version := range []string{tree, broken} {
			checkNothingIsLeftOf(version)
		}
		u.Check(before, false)
	})
})

var _ = Describe("Every upgrade of the published catalog", Label("every-edge"), func() {
	BeforeEach(func() { serveCatalog(image + "published") })

	for i, channel := range read("catalog/echo-operator").Channels {
		for j, version := range channel.Versions() {
			if version.LT(channel.Head()) {
				labels := Label()
				if i+j == 0 {
					labels = Label("walk") // From the oldest, through all versions.
				}
				It(fmt.Sprintf("in %s, from %s", channel.Name, version), labels, func() { walk(channel, version) })
			}
		}
	}
})

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
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// upgrade approves one upgrade, and checks that it is complete and does not affect the workload.
func upgrade(channel string, from, to semver.Version, w workload.Workload) {
	GinkgoHelper()
	before := w.Observe()
	start := time.Now()
	does, err := releases.Upgrade(from, to)
	Expect(err).NotTo(HaveOccurred())
	approve(to.String())
	awaitSucceeded(to.String())
	took := time.Since(start)
	expectNothingLeftOf(from.String())

	By("checking that the new operator reconciles")
	w.ExerciseOperator()
	Expect(Kubectl("get", crd, "-o", "jsonpath={.status.storedVersions}")).To(Equal(`["v1"]`))
	upgrades = append(upgrades, fmt.Sprintf("| %s | %s | %s | %.1f s | %s |", from, to, channel, took.Seconds(), w.ExpectUnaffected(before, does.RollsServers)))
}

// expectNothingLeftOf checks that OLM has deleted the version and every object that it created for it.
func expectNothingLeftOf(version string) {
	GinkgoHelper()
	Eventually(phase).WithArguments(version).Should(Equal("absent"))
	Eventually(func() string {
		return Kubectl("-n", operatorNamespace, "get", "csv,operatorconditions,deployments,roles,rolebindings,serviceaccounts,services",
			"-l", "olm.owner="+csvOf(version), "-o", "name") +
			Kubectl("get", "clusterroles,clusterrolebindings", "-l", "olm.owner="+csvOf(version), "-o", "name")
	}).Should(BeEmpty())
	Eventually(func() []string {
		return strings.Fields(Kubectl("-n", operatorNamespace, "get", "csv,operatorconditions,deployments,pods", "-o", "name"))
	}).Should(HaveLen(4), "CSVs, OperatorConditions, Deployments and pods: one of each")
}

//go:build e2e

package olmv0

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/users"
)

// hop approves the upgrade and checks that it is whole, and that the users have not noticed.
func hop(channel, from, to string, rolls bool, u users.Users) {
	GinkgoHelper()
	before := u.Look()
	start := time.Now()
	approve(to)
	awaitSucceeded(to)
	took := time.Since(start)
	checkNothingIsLeftOf(from)

	By("letting the new operator act")
	u.TryOperator()
	Expect(Kubectl("get", crd, "-o", "jsonpath={.status.storedVersions}")).To(Equal(`["v1"]`))
	hops = append(hops, fmt.Sprintf("| %s | %s | %s | %.1f s | %s |", from, to, channel, took.Seconds(), u.Check(before, rolls)))
}

// checkNothingIsLeftOf checks that OLM has taken the version away, with all that it made for it.
func checkNothingIsLeftOf(version string) {
	GinkgoHelper()
	Eventually(phase).WithArguments(version).Should(Equal("absent"))
	Eventually(func() string {
		return Kubectl("-n", operatorNamespace, "get", "csv,operatorconditions,deployments,roles,rolebindings,serviceaccounts,services",
			"-l", "olm.owner="+csvOf(version), "-o", "name") +
			Kubectl("get", "clusterroles,clusterrolebindings", "-l", "olm.owner="+csvOf(version), "-o", "name")
	}).Should(BeEmpty())
	Eventually(func() []string {
		return strings.Fields(Kubectl("-n", operatorNamespace, "get", "csv,operatorconditions,deployments,pods", "-o", "name"))
	}).Should(HaveLen(4), "one of each kind")
}

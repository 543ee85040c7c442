//go:build e2e

// Package helm tests the Helm chart with Helm: installation, upgrade, rollback, removal, and some watched namespaces. It
// needs the local cluster, with the images of hack/catalog/test-catalogs.sh.
package helm

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/olm"
)

const (
	operatorNamespace = "echo-operator-system"
	operator          = "deployment/echo-operator-controller-manager"
	crd               = "customresourcedefinition/echoes.kkloud.io"
	root              = "../../.."
	chart             = root + "/dist/chart"
)

func TestHelm(t *testing.T) {
	Run(t, root, "Operator installed by Helm", 2*time.Minute, "get events --all-namespaces --sort-by=.lastTimestamp",
		"-n "+operatorNamespace+" logs "+operator+" --tail=20")
}

var _ = BeforeSuite(func() {
	By("removing the remains of an earlier run and of the demo")
	Kubectl("-n", operatorNamespace, "delete", "subscriptions,csv", "--all", "--ignore-not-found")
	Kubectl("delete", "clusterroles", "-l", "app.kubernetes.io/name=echo-operator,olm.managed=true")
	removeOperator()
})

// removeOperator deletes the release and everything that it keeps.
func removeOperator() {
	GinkgoHelper()
	Helm("uninstall", "echo-operator", "--namespace", operatorNamespace, "--ignore-not-found", "--wait")
	Kubectl("delete", crd, "--ignore-not-found")
	Kubectl("delete", "namespace", operatorNamespace, "--ignore-not-found")
}

// Helm runs helm and returns its output. If helm fails, the spec fails.
func Helm(args ...string) string {
	GinkgoHelper()
	start := time.Now()
	output, err := TryHelm(args...)
	Expect(err).NotTo(HaveOccurred(), output)
	AddReportEntry(fmt.Sprintf("helm %s: %.1f s", strings.Join(args, " "), time.Since(start).Seconds()))
	return output
}

// TryHelm runs helm and returns its output and its error.
func TryHelm(args ...string) (string, error) {
	output, err := exec.Command("helm", args...).CombinedOutput() //nolint:gosec // The specs choose the arguments.
	return string(output), err
}

// predecessor returns the arguments that select the chart before that of this tree: the chart of a release, or before the
// first one, this chart under a lower version.
func predecessor(c olm.Catalog) []string {
	GinkgoHelper()
	released := root + "/bin/catalogs/" + c.Predecessor + "/tree/dist/chart"
	if _, err := os.Stat(released); err == nil {
		return []string{released}
	}
	directory := GinkgoT().TempDir()
	Helm("package", chart, "--version", c.Predecessor, "--app-version", c.Predecessor, "--destination", directory)
	return []string{directory + "/echo-operator-" + c.Predecessor + ".tgz", "--set", "images.operator.tag=v" + c.Predecessor}
}

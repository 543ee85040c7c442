// Package cluster has what the end-to-end suites do with the cluster of the KUBECONFIG.
package cluster

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
)

// Kubectl returns what the command prints, and fails the spec where it fails.
func Kubectl(args ...string) string {
	ginkgo.GinkgoHelper()
	output, err := TryKubectl("", args...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), "kubectl %s\n%s", strings.Join(args, " "), output)
	return output
}

// TryKubectl returns what the command prints, and whether it failed.
func TryKubectl(stdin string, args ...string) (string, error) {
	command := exec.Command("kubectl", args...) //nolint:gosec // The specs say what to run.
	command.Stdin = strings.NewReader(stdin)
	var output, errors bytes.Buffer
	command.Stdout, command.Stderr = &output, &errors
	err := command.Run()
	return output.String() + errors.String(), err
}

// Apply applies a manifest.
func Apply(namespace, manifest string) {
	ginkgo.GinkgoHelper()
	output, err := TryKubectl(manifest, "-n", namespace, "apply", "-f", "-")
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), output)
}

// NewNamespace creates a namespace that enforces the restricted Pod Security Standard, and
// removes it when the spec, or the container that called it, ends. A run that was interrupted
// may have left one of that name.
func NewNamespace(name string) {
	ginkgo.GinkgoHelper()
	Kubectl("delete", "namespace", name, "--ignore-not-found")
	Kubectl("create", "namespace", name)
	Kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	ginkgo.DeferCleanup(func() { Kubectl("delete", "namespace", name, "--wait=false") })
}

// WaitReady waits until the Echo is ready.
func WaitReady(namespace, echo string) {
	ginkgo.GinkgoHelper()
	Kubectl("-n", namespace, "wait", "--for=condition=Ready", "echo/"+echo, "--timeout=120s")
}

// ExpectAnswer checks what the Echo's Service answers. It may take a moment: endpoints follow
// the readiness of pods, and no status tells when they have.
func ExpectAnswer(namespace, echo, port string, matcher types.GomegaMatcher) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func() (string, error) {
		output, err := TryKubectl("", "get", "--raw", "/api/v1/namespaces/"+namespace+"/services/echo-"+echo+":"+port+"/proxy/")
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, output)
		}
		return output, nil
	}, "20s").Should(matcher)
}

// PrintHops prints the table of what was walked.
func PrintHops(hops []string) {
	if len(hops) > 0 {
		fmt.Println("| from | to | channel | hop | requests | failed | server pods restarted |\n|---|---|---|---|---|---|---|\n" +
			strings.Join(hops, "\n"))
	}
}

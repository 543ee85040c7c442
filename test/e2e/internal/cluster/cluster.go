// Package cluster contains what the end-to-end suites do with the cluster of KUBECONFIG.
package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// ChildResources returns the resources of all children of an Echo, as kubectl takes them. It omits those
// that the cluster may not serve.
func ChildResources() string {
	var resources []string
	for _, kind := range children.Kinds {
		if !kind.OptionalAPI {
			resources = append(resources, kind.Resource.GroupResource().String())
		}
	}
	return strings.Join(resources, ",")
}

// Kubectl runs kubectl and returns its output. If kubectl fails, the spec fails.
func Kubectl(args ...string) string {
	ginkgo.GinkgoHelper()
	output, err := TryKubectl("", args...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), "kubectl %s\n%s", strings.Join(args, " "), output)
	return output
}

// TryKubectl runs kubectl and returns its output and its error.
func TryKubectl(stdin string, args ...string) (string, error) {
	command := exec.Command("kubectl", args...) //nolint:gosec // The specs choose the arguments.
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
// deletes it at the end of the spec or container that calls it. It first deletes a namespace of
// that name from an interrupted run.
func NewNamespace(name string) {
	ginkgo.GinkgoHelper()
	Kubectl("delete", "namespace", name, "--ignore-not-found")
	Kubectl("create", "namespace", name)
	Kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
	ginkgo.DeferCleanup(func() { Kubectl("delete", "namespace", name, "--wait=false") })
}

// StopOLM stops OLM until the spec ends: OLM would revert the changes to the operator.
func StopOLM() {
	ginkgo.GinkgoHelper()
	Kubectl("-n", "olm", "scale", "deployment/olm-operator", "--replicas=0")
	ginkgo.DeferCleanup(func() {
		Kubectl("-n", "olm", "scale", "deployment/olm-operator", "--replicas=1")
		Kubectl("-n", "olm", "rollout", "status", "deployment/olm-operator", "--timeout=60s")
	})
	Kubectl("-n", "olm", "wait", "--for=delete", "pod", "-l", "app=olm-operator", "--timeout=60s")
}

// WaitReady waits until the Echo is ready.
func WaitReady(namespace, echo string) {
	ginkgo.GinkgoHelper()
	Kubectl("-n", namespace, "wait", "--for=condition=Ready", "echo/"+echo, "--timeout=120s")
}

// ExpectAnswer checks the answer of the Echo's Service. It retries for 20 s: endpoints follow the
// readiness of pods, and no status shows when they are programmed.
func ExpectAnswer(namespace, echo, port string, matcher types.GomegaMatcher) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func() (string, error) {
		output, err := TryKubectl("", "get", "--raw", "/api/v1/namespaces/"+namespace+"/services/echo-"+echo+":"+port+"/proxy/")
		if err != nil {
			return "", fmt.Errorf("%w: %s", err, output)
		}
		return output, nil
	}, "20s").Should(matcher, "answer of Service %s/echo-%s", namespace, echo)
}

// Forward forwards a local port to the object's port until the spec or container that calls it ends,
// and returns the local address.
func Forward(namespace, object, port string) string {
	ginkgo.GinkgoHelper()
	command := exec.Command("kubectl", "-n", namespace, "port-forward", object, ":"+port) //nolint:gosec // The specs choose the arguments.
	output, err := command.StdoutPipe()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(command.Start()).To(gomega.Succeed())
	ginkgo.DeferCleanup(func() {
		gomega.Expect(command.Process.Kill()).To(gomega.Or(gomega.Succeed(), gomega.MatchError(os.ErrProcessDone)))
		_ = command.Wait() // The error of Wait is that of Kill.
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	gomega.Expect(address).NotTo(gomega.BeEmpty(), line)
	return address
}

// PrintUpgrades prints the table of the upgrades that a suite tested.
func PrintUpgrades(rows []string) {
	if len(rows) > 0 {
		fmt.Println("| from | to | channel | duration | requests | failed | server pods restarted |\n|---|---|---|---|---|---|---|\n" +
			strings.Join(rows, "\n"))
	}
}

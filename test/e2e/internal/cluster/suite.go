package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

// Run runs the specs of a suite on the cluster of KUBECONFIG, if tests may use it. After the failure of a spec, it prints what kubectl
// prints with each of the states, which are its arguments, separated by spaces. The root is the path to the top of the repository.
func Run(t *testing.T, root, title string, timeout time.Duration, states ...string) {
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	gomega.SetDefaultEventuallyTimeout(timeout)
	gomega.SetDefaultEventuallyPollingInterval(500 * time.Millisecond)
	ginkgo.JustAfterEach(func() {
		if !ginkgo.CurrentSpecReport().Failed() {
			return
		}
		for _, state := range append(states, "get echoes,pods --all-namespaces -o wide") {
			output, _ := TryKubectl("", strings.Fields(state)...)
			ginkgo.GinkgoWriter.Printf("$ kubectl %s\n%s\n", state, output)
		}
	})
	ginkgo.RunSpecs(t, title)
}

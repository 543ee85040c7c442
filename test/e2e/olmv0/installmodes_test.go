//go:build e2e

package olmv0

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/internal/children"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// account is the operator's user name.
const account = "system:serviceaccount:" + operatorNamespace + ":echo-operator-controller-manager"

var _ = Describe("In the install mode", Label("modes"), Ordered, func() {
	all := []string{operatorNamespace, "mode-one", "mode-two", "mode-three"}

	BeforeAll(func() {
		serveCatalog(image + "broken")
		for _, namespace := range all[1:] {
			NewNamespace(namespace)
		}
	})

	DescribeTable("the operator reconciles Echoes, and has permissions, only in the namespaces of its OperatorGroup",
		func(watched ...string) {
			_, tree, _, _ := newest()
			Kubectl("apply", "-f", root+"/config/olm/namespace.yaml")
			targets := watched
			if len(watched) == len(all) {
				targets = nil
			}
			subscribe("test", tree, targets...)
			awaitSucceeded(tree)

			for _, namespace := range all {
				Apply(namespace, `{"apiVersion": "kkloud.io/v1", "kind": "Echo", "metadata": {"name": "mode"}, "spec": {"message": "`+namespace+`", "replicas": 2}}`)
				DeferCleanup(func() { Kubectl("-n", namespace, "delete", "echo", "mode", "--ignore-not-found") })
			}
			for _, namespace := range watched {
				WaitReady(namespace, "mode")
				ExpectAnswer(namespace, "mode", "80", Equal(namespace+"\n"))
			}
			By("checking the operator's permissions")
			for _, namespace := range all {
				allowed := slices.Contains(watched, namespace) || namespace == operatorNamespace
				for _, request := range required() {
					Expect(can(namespace, request)).To(Equal(allowed), "permission to %s in %s", request, namespace)
				}
				for _, request := range []string{"get secrets", "create pods", "deletecollection deployments.apps", "create rolebindings", "* *"} {
					Expect(can(namespace, request)).To(BeFalse(), "permission to %s in %s", request, namespace)
				}
				if !slices.Contains(watched, namespace) {
					Expect(Kubectl("-n", namespace, "get", ChildResources(), "-l", "kkloud.io/echo", "-o", "name")).To(BeEmpty())
					Expect(Kubectl("-n", namespace, "get", "echo", "mode", "-o", "jsonpath={.status}")).To(BeEmpty())
				}
			}
			Expect(Kubectl("-n", operatorNamespace, "get", "pods", "-l", "control-plane=controller-manager", "-o",
				"jsonpath={.items[*].status.containerStatuses[*].restartCount}")).To(Equal("0"))
		},
		Entry("OwnNamespace", Label("OwnNamespace"), operatorNamespace),
		Entry("SingleNamespace", Label("SingleNamespace"), "mode-one"),
		Entry("MultiNamespace", Label("MultiNamespace"), "mode-one", "mode-two"),
		Entry("AllNamespaces", Label("AllNamespaces"), operatorNamespace, "mode-one", "mode-two", "mode-three"),
	)
})

// required returns requests that the operator makes, each as "<verb> <resource>".
func required() []string {
	requests := []string{"list pods", "watch echoes.kkloud.io"}
	for _, kind := range children.Kinds {
		requests = append(requests, "create "+kind.Resource.GroupResource().String())
	}
	return requests
}

// can reports whether the operator has a permission in a namespace: "<verb> <resource>".
func can(namespace, request string) bool {
	GinkgoHelper()
	verb, resource, _ := strings.Cut(request, " ")
	answer, _ := TryKubectl("", "-n", namespace, "auth", "can-i", verb, strings.TrimSpace(resource), "--as="+account)
	// There is a warning about a resource that the cluster does not serve, before or after the answer.
	for line := range strings.Lines(answer) {
		switch {
		case strings.HasPrefix(line, "yes"):
			return true
		case strings.HasPrefix(line, "no"):
			return false
		}
	}
	Fail("kubectl auth can-i = " + answer + ", want yes or no")
	return false
}

//go:build e2e

package olmv0

import (
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// account is who the operator is to the API server.
const account = "system:serviceaccount:" + operatorNamespace + ":echo-operator-controller-manager"

var _ = Describe("In the install mode", Label("modes"), Ordered, func() {
	all := []string{operatorNamespace, "mode-one", "mode-two", "mode-three"}

	BeforeAll(func() {
		serveCatalog(image + "broken")
		for _, namespace := range all[1:] {
			NewNamespace(namespace)
		}
	})

	DescribeTable("the operator serves the namespaces of its OperatorGroup, and no others",
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
			By("not being able to do more")
			for _, namespace := range all {
				may := slices.Contains(watched, namespace) || namespace == operatorNamespace
				for _, request := range []string{"create deployments.apps", "list pods", "watch echoes.kkloud.io"} {
					Expect(can(namespace, request)).To(Equal(may), "%s in %s", request, namespace)
				}
				for _, request := range []string{"get secrets", "create pods", "delete deployments.apps", "create rolebindings", "* *"} {
					Expect(can(namespace, request)).To(BeFalse(), "%s in %s", request, namespace)
				}
				if !slices.Contains(watched, namespace) {
					Expect(Kubectl("-n", namespace, "get", "deployments,services,poddisruptionbudgets", "-l", "kkloud.io/echo", "-o", "name")).To(BeEmpty())
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

// can tells whether the operator may do something in a namespace: "<verb> <resource>".
func can(namespace, request string) bool {
	GinkgoHelper()
	verb, resource, _ := strings.Cut(request, " ")
	answer, _ := TryKubectl("", "-n", namespace, "auth", "can-i", verb, strings.TrimSpace(resource), "--as="+account)
	switch {
	case strings.HasPrefix(answer, "yes"):
		return true
	case strings.HasPrefix(answer, "no"):
		return false
	}
	Fail("can-i says neither yes nor no: " + answer)
	return false
}

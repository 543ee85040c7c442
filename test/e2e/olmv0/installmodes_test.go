//go:build e2e

package olmv0

import (
	"encoding/json"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
				for _, request := range []string{"get secrets", "create pods", "deletecollection deployments.apps", "create rolebindings.rbac.authorization.k8s.io", "* *.*"} {
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

// can reports whether the operator has a permission in a namespace: "<verb> <resource>.<group>". The
// cluster may not serve the resource: kubectl auth can-i would take its group for a part of its name.
func can(namespace, request string) bool {
	GinkgoHelper()
	verb, resource, _ := strings.Cut(request, " ")
	of := schema.ParseGroupResource(resource)
	review, err := json.Marshal(authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               account,
			Groups:             []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + operatorNamespace},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: of.Group, Resource: of.Resource},
		},
	})
	Expect(err).NotTo(HaveOccurred())
	allowed, err := TryKubectl(string(review), "create", "-f", "-", "-o", "jsonpath={.status.allowed}")
	Expect(err).NotTo(HaveOccurred())
	Expect(allowed).To(Or(Equal("true"), Equal("false")), "answer about the permission to %s", request)
	return allowed == "true"
}

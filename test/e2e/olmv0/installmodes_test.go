//go:build e2e

package olmv0

import (
	"context"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	. "github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

var _ = Describe("After a change of the install mode", Label("modes"), Serial, func() {
	It("the operator reconciles Echoes, and has permissions, only in the namespaces of its OperatorGroup", func() {
		all := []string{operatorNamespace, "mode-one", "mode-two", "mode-three"}
		for _, namespace := range all[1:] {
			NewNamespace(namespace)
		}
		// Each mode adds permissions: OLM does not delete those of a mode that watches more namespaces.
		i := installAlone("echo-operator", catalog().Channel("stable"), catalog().Tree, operatorNamespace)
		for _, mode := range []struct {
			name    string
			watched []string
		}{
			{"OwnNamespace", all[:1]}, {"SingleNamespace", all[1:2]}, {"MultiNamespace", all[1:3]}, {"AllNamespaces", all},
		} {
			By(mode.name)
			targets := mode.watched
			if mode.name == "AllNamespaces" {
				targets = nil
			}
			i.watch(targets...)
			Eventually(func() (watched []string, err error) {
				pods, err := Pods(operatorNamespace, "control-plane=controller-manager")
				for _, pod := range pods {
					watched = append(watched, pod.Annotations["olm.targetNamespaces"])
				}
				return watched, err
			}).Should(And(HaveLen(2), HaveEach(strings.Join(targets, ","))), "namespaces that the operator's pods watch")
			i.awaitSucceeded(catalog().Tree)
			echo := strings.ToLower(mode.name)
			for _, namespace := range all {
				CreateEcho(namespace, echo, echov1.EchoSpec{Message: namespace})
			}
			for _, namespace := range mode.watched {
				WaitReady(namespace, echo)
				ExpectBody(namespace, echo, "80", Equal(namespace+"\n"))
			}
			for _, namespace := range all {
				watched := slices.Contains(mode.watched, namespace)
				for _, request := range required() {
					Eventually(can).WithArguments(namespace, request).Should(Equal(watched || namespace == operatorNamespace),
						"permission to %s in %s", request, namespace)
				}
				for _, request := range []string{"get secrets", "create pods", "deletecollection deployments.apps", "* *.*"} {
					Expect(can(namespace, request)).To(BeFalse(), "permission to %s in %s", request, namespace)
				}
				if !watched {
					Expect(Kubectl("-n", namespace, "get", ChildResources(), "-l", "kkloud.io/echo="+echo, "-o", "name")).To(BeEmpty())
					Expect(Kubectl("-n", namespace, "get", "echo", echo, "-o", "jsonpath={.status}")).To(Equal(`{"observedGeneration":-1}`))
				}
				Kubectl("-n", namespace, "delete", "echo", echo)
			}
		}
	})
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
func can(namespace, request string) (bool, error) {
	verb, resource, _ := strings.Cut(request, " ")
	of := schema.ParseGroupResource(resource)
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + operatorNamespace + ":echo-operator-controller-manager",
		Groups:             []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + operatorNamespace},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: of.Group, Resource: of.Resource},
	}}
	err := Client().Create(context.Background(), review)
	return review.Status.Allowed, err
}

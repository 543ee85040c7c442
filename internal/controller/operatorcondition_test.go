package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

var _ = Describe("The OperatorCondition", func() {
	var condition *operatorsv2.OperatorCondition

	// OLM creates these objects for an installation.
	BeforeEach(func() {
		meta := metav1.ObjectMeta{Namespace: newNamespace(), Name: "echo-operator.v0.0.0"}
		condition = &operatorsv2.OperatorCondition{ObjectMeta: meta}
		Expect(admin.Create(ctx, condition)).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{operatorsv2.GroupVersion.Group}, Resources: []string{"operatorconditions"},
			ResourceNames: []string{meta.Name}, Verbs: []string{"get", "update", "patch"},
		}}})).To(Succeed())
		Expect(admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: operatorUser}},
		})).To(Succeed())
		waitForPermission(authorizationv1.ResourceAttributes{
			Verb: "get", Group: operatorsv2.GroupVersion.Group, Resource: "operatorconditions", Namespace: meta.Namespace, Name: meta.Name,
		})
	})

	reported := func() string {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(condition), condition); err != nil {
			return err.Error()
		}
		upgradeable := meta.FindStatusCondition(condition.Spec.Conditions, operatorsv2.Upgradeable)
		if upgradeable == nil {
			return "no condition"
		}
		return string(upgradeable.Status) + " " + upgradeable.Reason
	}

	It("is not Upgradeable while a rollout is in flight, and is written only on changes", func() {
		key := client.ObjectKeyFromObject(condition)
		namespace := newNamespace()
		stop := startOperatorUnderOLM(key, namespace)
		Eventually(reported).Should(Equal("True RolledOut"))

		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Image = controlplane.NeverReady })
		Eventually(reported).Should(Equal("False RollingOut"))
		Expect(condition.Spec.Conditions[0].Message).To(ContainSubstring(namespace + "/hello"))
		edit(echo, func(s *echov1.EchoSpec) { s.Image = "" })
		expectReady(echo)
		Eventually(reported).Should(Equal("True RolledOut"))

		By("restarting the operator, which must not write an unchanged condition")
		stop()
		since := auditMark()
		startOperatorUnderOLM(key, namespace)
		Consistently(reported).Should(Equal("True RolledOut"))
		Expect(requestsSince(since)).NotTo(ContainElement(ContainSubstring("patch operatorconditions")))

		By("deleting an Echo during its rollout")
		edit(echo, func(s *echov1.EchoSpec) { s.Image = controlplane.NeverReady })
		Eventually(reported).Should(Equal("False RollingOut"))
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		Eventually(reported).Should(Equal("True RolledOut"))
	})

	It("is Upgradeable while an Echo has failed", func() {
		namespace := newNamespace()
		Expect(admin.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-hello"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.invalid"},
		})).To(Succeed())
		startOperatorUnderOLM(client.ObjectKeyFromObject(condition), namespace)
		Eventually(reported).Should(Equal("True RolledOut"))
		expectCondition(createEcho(namespace, "hello"), echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
		Consistently(reported).Should(Equal("True RolledOut"))
	})
})

package controller

import (
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var _ = Describe("An object that is not controlled by the Echo", func() {
	var entries []TableEntry
	for _, kind := range children.Kinds {
		entries = append(entries, Entry("a "+kind.Name, kind, nil),
			Entry("a "+kind.Name+" with the operator's label", kind, map[string]string{children.ManagedByLabel: children.ManagedBy}))
	}
	DescribeTable("is not changed, and the child is created after its deletion",
		func(kind children.Kind, labels map[string]string) {
			startOperator()
			namespace := newNamespace()
			object := client.Object(kind.New())
			kind.Mutate(object, newEcho(namespace, "other", func(s *echov1.EchoSpec) { s.Port, s.TargetPort = 1, 5678 }), inputs)
			object.SetNamespace(namespace)
			object.SetName(kind.ChildName(newEcho(namespace, "hello")))
			object.SetLabels(labels)
			object.SetOwnerReferences(nil)
			Expect(admin.Create(ctx, object)).To(Succeed())
			version := object.GetResourceVersion()

			echo := createEcho(namespace, "hello", everyChildWith(kind))
			expectCondition(echo, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
			Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring(object.GetName() + " exists and is not controlled by this Echo"))
			Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Warning Conflict"))
			edit(echo, func(s *echov1.EchoSpec) { s.Message, s.Port = "other", 81 })
			expectCondition(echo, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			Expect(object.GetUID()).NotTo(BeEmpty())
			Expect(object.GetOwnerReferences()).To(BeEmpty())
			Expect(unchanged(object, version)).To(BeTrue())

			Expect(admin.Delete(ctx, object)).To(Succeed())
			expectReady(echo)
		},
		entries,
	)

	It("is waited for if it is a child of an earlier Echo with the same name", func() {
		namespace := newNamespace()
		earlier := createEcho(namespace, "hello")
		service := serviceOf(earlier)
		children.Service(service, earlier, children.Inputs{})
		service.OwnerReferences[0].UID = "00000000-0000-0000-0000-000000000000"
		service.Finalizers = []string{"kkloud.io/test"} // Prevents the deletion by the garbage collector.
		Expect(admin.Create(ctx, service)).To(Succeed())
		startOperator()
		expectCondition(earlier, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonRollingOut)
		Expect(message(earlier, echov1.ConditionReady)).To(ContainSubstring(
			"Service echo-hello of an earlier Echo (UID 00000000-0000-0000-0000-000000000000) is being deleted; its finalizers: kkloud.io/test"))
		expectCondition(earlier, echov1.ConditionDegraded, metav1.ConditionFalse, echov1.ReasonAsExpected)
		Eventually(komega.Update(service, func() { service.Finalizers = nil })).Should(Succeed())
		expectReady(earlier)
	})

	It("is adopted without a new rollout if the operator wrote it for an Echo of this name", func() {
		stop := startOperator()
		namespace := newNamespace()
		echo := createEcho(namespace, "hello", everyChild)
		expectReady(echo)
		stop()
		uids := map[string]string{}
		for _, child := range childrenOf(echo) {
			Expect(komega.Get(child)()).To(Succeed())
			uids[fmt.Sprintf("%T %s", child, child.GetName())] = string(child.GetUID())
		}
		before := podsOf(echo)
		Expect(admin.Delete(ctx, echo, client.PropagationPolicy(metav1.DeletePropagationOrphan))).To(Succeed())
		for _, child := range childrenOf(echo) {
			Eventually(komega.Object(child)).Should(HaveField("ObjectMeta.OwnerReferences", BeEmpty()))
		}
		// The garbage collector removes the finalizer of the Echo after it has orphaned the children.
		Eventually(komega.Get(echo)).Should(WithTransform(apierrors.IsNotFound, BeTrue()))
		restored := createEcho(namespace, "hello", everyChild)
		startOperator()
		expectReady(restored)
		for _, child := range childrenOf(echo) {
			Expect(komega.Get(child)()).To(Succeed())
			Expect(string(child.GetUID())).To(Equal(uids[fmt.Sprintf("%T %s", child, child.GetName())]))
			Expect(metav1.IsControlledBy(child, restored)).To(BeTrue())
		}
		Expect(podsOf(restored)).To(Equal(before))
	})

	It("is ignored if the Echo wants no such child", func() {
		startOperator()
		namespace := newNamespace()
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-hello",
			Labels: map[string]string{children.ManagedByLabel: children.ManagedBy}}}
		Expect(admin.Create(ctx, budget)).To(Succeed())
		expectReady(createEcho(namespace, "hello"))
		Expect(komega.Get(budget)()).To(Succeed())
	})
})

// podsOf returns the UIDs of the Echo's pods.
func podsOf(echo *echov1.Echo) []types.UID {
	GinkgoHelper()
	var pods corev1.PodList
	Expect(admin.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingLabels(children.Selector(echo)))).To(Succeed())
	var uids []types.UID
	for _, pod := range pods.Items {
		uids = append(uids, pod.UID)
	}
	slices.Sort(uids)
	return uids
}

// unchanged reports whether only the controllers of Kubernetes have written the object. They
// write the status of Deployments and budgets.
func unchanged(object client.Object, version string) bool {
	if object.GetResourceVersion() == version {
		return true
	}
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != "kube-controller-manager" && entry.Operation == metav1.ManagedFieldsOperationUpdate &&
			entry.Time.After(object.GetCreationTimestamp().Time) {
			return false
		}
	}
	return object.GetGeneration() <= 1
}

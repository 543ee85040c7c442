package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// A policy that sets the label on every object, for example, hides a child from the cache.
var _ = Describe("A child that is no longer wanted, and whose label another client changed", func() {
	for _, kind := range children.Kinds {
		if !kind.Conditional {
			continue
		}
		Context(kind.Name, func() {
			var echo *echov1.Echo
			var child client.Object
			var stop func()

			BeforeEach(func() {
				namespace := newNamespace()
				stop = startOperator()
				echo = createEcho(namespace, "hello", everyChildWith(kind))
				expectReady(echo)
				child = kind.New()
				child.SetNamespace(namespace)
				child.SetName(kind.ChildName(echo))
				Expect(komega.Get(child)()).To(Succeed())
			})

			changeBoth := func() {
				Eventually(komega.Update(child, func() { child.GetLabels()[children.ManagedByLabel] = "platform" })).Should(Succeed())
				edit(echo, func(s *echov1.EchoSpec) { s.Replicas, s.Route, s.Verify = 1, nil, nil })
			}
			expectDeleted := func() {
				GinkgoHelper()
				Eventually(func() bool { return apierrors.IsNotFound(komega.Get(child)()) }).Should(BeTrue(), "it still exists")
				expectReady(echo)
			}

			It("is deleted after a start of the operator", func() {
				stop()
				changeBoth()
				startOperator()
				expectDeleted()
			})

			It("is deleted if that was during a rollout", func() {
				edit(echo, func(s *echov1.EchoSpec) { s.Image = controlplane.NeverReady })
				expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut)
				stop()
				Eventually(komega.Update(child, func() { child.GetLabels()[children.ManagedByLabel] = "platform" })).Should(Succeed())
				edit(echo, func(s *echov1.EchoSpec) { s.Replicas, s.Route, s.Verify, s.Image = 1, nil, nil, "" })
				startOperator()
				expectDeleted()
			})

			It("is deleted after another start if the deletion was rejected before", func() {
				stop()
				rule := createAndUpdate(kind.Resource.Group, kind.Resource.Resource)
				rule.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}
				lift := validate(echo.Namespace, rule, admissionregistrationv1.Validation{Expression: "false", Message: "kept"})
				Eventually(func() error { return admin.Delete(ctx, child.DeepCopyObject().(client.Object), client.DryRunAll) }, "30s").
					Should(MatchError(ContainSubstring("kept")))
				changeBoth()
				stopAgain := startOperator()
				expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonRejected)
				Expect(message(echo, echov1.ConditionReady)).To(SatisfyAll(HavePrefix(kind.Name), ContainSubstring("kept")))
				stopAgain()
				lift()
				startOperator()
				expectDeleted()
			})
		})
	}
})

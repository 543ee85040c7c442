package controller

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// newestKubernetes is the label of specs that need MutatingAdmissionPolicy, which the oldest supported
// Kubernetes does not serve.
var newestKubernetes = Label("newest-kubernetes")

var _ = Describe("An Echo whose Deployment an admission policy mutates", newestKubernetes, func() {
	var namespace string

	BeforeEach(func() { namespace = newNamespace() })

	It("is Ready without writes if the policy adds a field that the operator does not own", func() {
		mutateDeployments(namespace, `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
			securityContext: Object.spec.template.spec.securityContext{fsGroup: 2000}}}}}`)
		startOperator()
		echo := createEcho(namespace, "hello")
		expectReady(echo)
		Expect(echo.Status.Overridden).To(BeEmpty())
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		expectReady(echo)
		deployment := deploymentOf(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(deployment.Spec.Template.Spec.SecurityContext.FSGroup).To(HaveValue(BeEquivalentTo(2000)))
	})

	It("is Ready and Overridden if the policy changes the resources, and is not written again", func() {
		mutateDeployments(namespace, `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
			containers: [Object.spec.template.spec.containers{name: "echo", resources: Object.spec.template.spec.containers.resources{
				limits: {"cpu": "500m"}, requests: {"cpu": "250m"}}}]}}}}`)
		stop := startOperator()
		echo := createEcho(namespace, "hello")
		expectReady(echo)
		overridden := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionOverridden)
		Expect(overridden.Status).To(Equal(metav1.ConditionTrue))
		Expect(overridden.Message).To(SatisfyAll(HavePrefix("Deployment: "), ContainSubstring("containers[echo].resources.limits.cpu")))
		expectReadyEvent(echo)

		since := auditMark()
		Consistently(func() []string { return requestsSince(since) }).Should(BeEmpty())
		By("restarting the operator")
		stop()
		since = auditMark()
		startOperator()
		Consistently(func() []string { return withoutInitialLists(requestsSince(since)) }).Should(BeEmpty())

		By("changing an accepted value")
		deployment := deploymentOf(echo)
		limit := func(d *appsv1.Deployment) string {
			return d.Spec.Template.Spec.Containers[0].Resources.Limits.Cpu().String()
		}
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(limit(deployment)).To(Equal("500m"))
		edit(echo, func(s *echov1.EchoSpec) {
			s.Resources.Limits = echov1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}
			s.Resources.Requests = echov1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
		})
		expectCondition(echo, echov1.ConditionOverridden, metav1.ConditionFalse, echov1.ReasonAsExpected)
		expectReady(echo)
	})

	It("is rejected if the policy changes the number of pods", func() {
		mutateDeployments(namespace, `Object{spec: Object.spec{replicas: 0}}`)
		startOperator()
		echo := createEcho(namespace, "hello")
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonRejected)
		Expect(message(echo, echov1.ConditionReady)).To(Equal(
			"Deployment: an admission policy or webhook changed spec.replicas, which determines the response"))
	})
})

var _ = Describe("A child that lost the operator's label", func() {
	It("gets it back although a quota allows no other object", func() {
		namespace := newNamespace()
		startOperator()
		echo := createEcho(namespace, "hello")
		expectReady(echo)
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/deployments.apps": resource.MustParse("1")}},
		}
		Expect(admin.Create(ctx, quota)).To(Succeed())
		Eventually(komega.Object(quota)).Should(HaveField("Status.Used", Not(BeEmpty())))
		deployment := deploymentOf(echo)
		Eventually(komega.Update(deployment, func() { delete(deployment.Labels, children.ManagedByLabel) })).Should(Succeed())
		Eventually(komega.Object(deployment)).Should(HaveField("Labels", HaveKeyWithValue(children.ManagedByLabel, children.ManagedBy)))
		expectReady(echo)
	})
})

// mutateDeployments has a policy apply a configuration to each Deployment of a namespace, until the
// spec ends.
func mutateDeployments(namespace, configuration string) {
	GinkgoHelper()
	name := metav1.ObjectMeta{Name: namespace}
	objects := []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      ptr.To(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				}}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: configuration},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: namespace}},
	}
	for _, object := range objects {
		Expect(admin.Create(ctx, object)).To(Succeed())
		DeferCleanup(func() { Expect(admin.Delete(ctx, object)).To(Succeed()) })
	}
	Eventually(func() (bool, error) { // The policy takes effect after a moment.
		echo := newEcho(namespace, "probe", func(s *echov1.EchoSpec) { s.Replicas, s.TargetPort = 1, 5678 })
		probe := deploymentOf(echo)
		children.Deployment(probe, echo, children.Inputs{ServerImage: serverImage})
		probe.OwnerReferences = nil
		plain := probe.DeepCopy()
		plain.Namespace = corev1.NamespaceDefault
		if err := errors.Join(admin.Create(ctx, probe, client.DryRunAll), admin.Create(ctx, plain, client.DryRunAll)); err != nil {
			return false, err
		}
		return !equality.Semantic.DeepEqual(probe.Spec, plain.Spec), nil
	}).Should(BeTrue())
}

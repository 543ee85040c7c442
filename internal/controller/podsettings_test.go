package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var _ = Describe("The pods of an Echo with spec.pod", func() {
	var namespace string

	BeforeEach(func() { namespace = newNamespace() })

	It("have the settings, which are removed with the field while the entries of external writers stay", func() {
		createPriorityClass(namespace)
		stop := startOperator()
		echo := createEcho(namespace, "hello")
		expectReady(echo)
		deployment := deploymentOf(echo)
		Eventually(komega.Update(deployment, func() {
			template := &deployment.Spec.Template
			template.Labels["mesh"] = "on"
			template.Spec.NodeSelector["topology.kubernetes.io/zone"] = "a"
			template.Spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
			template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "cluster-wide"}}
		})).Should(Succeed())
		before := deployment.Spec.Template.DeepCopy()

		edit(echo, func(s *echov1.EchoSpec) { s.Pod = podSettings(namespace) })
		expectReady(echo)
		pod := newestPod(echo)
		Expect(pod.Labels).To(And(HaveKeyWithValue("team", "blue"), HaveKeyWithValue("mesh", "on"), HaveKeyWithValue(children.EchoLabel, "hello")))
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/contact", "blue@example.com"))
		Expect(pod.Spec.NodeSelector).To(Equal(map[string]string{
			corev1.LabelOSStable: "linux", "topology.kubernetes.io/zone": "a", "example.com/pool": "canary"}))
		Expect(pod.Spec.Tolerations).To(ContainElements(HaveField("Key", "spot"), HaveField("Key", "dedicated")))
		Expect(pod.Spec.ImagePullSecrets).To(Equal([]corev1.LocalObjectReference{{Name: "cluster-wide"}, {Name: "mirror"}}))
		Expect(pod.Spec.SecurityContext.RunAsUser).To(HaveValue(BeEquivalentTo(65532)))
		Expect(pod.Spec.Priority).To(HaveValue(BeEquivalentTo(7)))
		expectReadyEvent(echo)

		By("restarting the operator")
		stop()
		since := auditMark()
		startOperator()
		Consistently(func() []string { return withoutInitialLists(requestsSince(since)) }).Should(BeEmpty())

		By("removing the settings")
		edit(echo, func(s *echov1.EchoSpec) { s.Pod = nil })
		expectReady(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(deployment.Spec.Template).To(Equal(*before))
		Expect(deployment.Annotations).NotTo(HaveKey(children.PodSettingsAnnotation))
	})

	It("get the settings back after an external writer changed them", func() {
		createPriorityClass(namespace)
		startOperator()
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Pod = podSettings(namespace) })
		expectReady(echo)
		deployment := deploymentOf(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		before := deployment.DeepCopy()
		Eventually(komega.Update(deployment, func() {
			template := &deployment.Spec.Template
			template.Labels["team"] = "red"
			delete(template.Spec.NodeSelector, "example.com/pool")
			template.Spec.Tolerations[0].TolerationSeconds = nil
			template.Spec.PriorityClassName = ""
			delete(deployment.Annotations, children.PodSettingsAnnotation)
		})).Should(Succeed())
		Eventually(komega.Object(deployment)).Should(HaveField("Spec.Template", before.Spec.Template))
		Expect(deployment.Annotations).To(HaveKeyWithValue(children.PodSettingsAnnotation, before.Annotations[children.PodSettingsAnnotation]))
	})

	It("are reported as rejected while the PriorityClass does not exist", func() {
		startOperator()
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Pod = &echov1.PodSettings{PriorityClassName: namespace} })
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonPodsRejected)
		Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("no PriorityClass with name " + namespace + " was found"))
		createPriorityClass(namespace)
		expectReady(echo)
	})

	It("are not created if the API server rejects a toleration", func() {
		startOperator()
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) {
			s.Pod = &echov1.PodSettings{Tolerations: []corev1.Toleration{{Key: "no key"}}}
		})
		expectCondition(echo, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonRejected)
		Expect(message(echo, echov1.ConditionDegraded)).To(ContainSubstring("tolerations[0].key: Invalid value: "))
	})

	It("have the value of an admission policy, which stays after the removal of the field", newestKubernetes, func() {
		mutateDeployments(namespace, `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{
			labels: {"example.com/team": "forced"}}}}}`)
		startOperator()
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) {
			s.Pod = &echov1.PodSettings{Labels: map[string]echov1.LabelValue{"example.com/team": "blue"}}
		})
		expectReady(echo)
		expectCondition(echo, echov1.ConditionOverridden, metav1.ConditionTrue, echov1.ReasonChangedByAdmission)
		Expect(message(echo, echov1.ConditionOverridden)).To(HaveSuffix("changed spec.template.metadata.labels[example.com/team]"))

		edit(echo, func(s *echov1.EchoSpec) { s.Pod = nil })
		expectCondition(echo, echov1.ConditionOverridden, metav1.ConditionFalse, echov1.ReasonAsExpected)
		expectReady(echo)
		deployment := deploymentOf(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(deployment.Spec.Template.Labels).To(HaveKeyWithValue("example.com/team", "forced"))
		Expect(deployment.Annotations).NotTo(HaveKey(children.PodSettingsAnnotation))
	})
})

// podSettings returns every setting, with a PriorityClass of the name.
func podSettings(priorityClass string) *echov1.PodSettings {
	return &echov1.PodSettings{
		NodeSelector: map[string]echov1.LabelValue{"example.com/pool": "canary"},
		Tolerations: []corev1.Toleration{{
			Key: "dedicated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(30)),
		}},
		PriorityClassName: priorityClass,
		ImagePullSecrets:  []echov1.SecretReference{{Name: "mirror"}},
		Labels:            map[string]echov1.LabelValue{"team": "blue"},
		Annotations:       map[string]echov1.AnnotationValue{"example.com/contact": "blue@example.com"},
		RunAsUser:         65532,
	}
}

func createPriorityClass(name string) {
	GinkgoHelper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: 7}
	Expect(admin.Create(ctx, class)).To(Succeed())
	DeferCleanup(func() { Expect(admin.Delete(ctx, class)).To(Succeed()) })
}

// newestPod returns a pod of the newest ReplicaSet of an Echo whose rollout is complete.
func newestPod(echo *echov1.Echo) corev1.Pod {
	GinkgoHelper()
	var sets appsv1.ReplicaSetList
	Expect(admin.List(ctx, &sets, client.InNamespace(echo.Namespace))).To(Succeed())
	var pods corev1.PodList
	for _, set := range sets.Items {
		if set.Status.AvailableReplicas > 0 {
			Expect(admin.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels))).To(Succeed())
		}
	}
	Expect(pods.Items).NotTo(BeEmpty(), "Echo %s has no available pod", echo.Name)
	return pods.Items[0]
}

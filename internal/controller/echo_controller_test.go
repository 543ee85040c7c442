package controller

import (
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var _ = Describe("An Echo", func() {
	var namespace string

	BeforeEach(func() { namespace = newNamespace() })

	It("gets its children and an accurate status", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		expectReady(echo)
		Expect(echo.Status.Ready).To(Equal("2/2"))
		Expect(echo.Status.Replicas).To(Equal(int32(2)))
		Expect(echo.Status.ReadyReplicas).To(Equal(int32(2)))
		Expect(echo.Status.AvailableReplicas).To(Equal(int32(2)))
		Expect(echo.Status.URL).To(Equal("http://echo-hello." + namespace + ".svc"))
		Expect(echo.Status.ObservedGeneration).To(Equal(echo.Generation))
		Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionAvailable)).To(BeTrue())
		Expect(meta.IsStatusConditionFalse(echo.Status.Conditions, echov1.ConditionProgressing)).To(BeTrue())
		Expect(meta.IsStatusConditionFalse(echo.Status.Conditions, echov1.ConditionDegraded)).To(BeTrue())

		container := containerOf(echo)
		Expect(container.Image).To(Equal(serverImage))
		Expect(container.Args).To(Equal([]string{"-text=xin chao operator", "-listen=:5678", "-health-listen=:5679"}))
		for _, child := range childrenOf(echo) {
			Expect(komega.Get(child)()).To(Succeed())
			Expect(child.GetOwnerReferences()).To(Equal([]metav1.OwnerReference{{
				APIVersion: "kkloud.io/v1", Kind: "Echo", Name: "hello", UID: echo.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}}))
			Expect(child.GetLabels()).To(HaveKeyWithValue(children.ManagedByLabel, children.ManagedBy))
		}
		Eventually(func() []string { return eventsOf(echo) }).Should(ConsistOf("Normal Ready"))
	})

	It("updates its children after an edit, and deletes the budget at one replica", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		expectReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Message, s.Replicas, s.Port = "changed", 1, 8080 })
		expectReady(echo)
		Expect(containerOf(echo).Args[0]).To(Equal("-text=changed"))
		Expect(echo.Status.URL).To(HaveSuffix(":8080"))
		Expect(komega.Object(serviceOf(echo))()).To(HaveField("Spec.Ports", ConsistOf(HaveField("Port", int32(8080)))))
		Eventually(komega.Get(budgetOf(echo))).Should(MatchError(ContainSubstring("not found")))
	})

	It("scales through the scale subresource", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		expectReady(echo)
		scale := &autoscalingv1.Scale{}
		Expect(admin.SubResource("scale").Get(ctx, echo, scale)).To(Succeed())
		Expect(scale.Status.Selector).To(Equal("kkloud.io/echo=hello"))
		Expect(scale.Status.Replicas).To(Equal(int32(2)))
		scale.Spec.Replicas = 4
		Expect(admin.SubResource("scale").Update(ctx, echo, client.WithSubResourceBody(scale))).To(Succeed())
		expectReady(echo)
		Expect(echo.Status.Ready).To(Equal("4/4"))
	})

	It("returns removed settings to their default", func() {
		startOperator()
		other := createEcho(namespace, "plain")
		echo := createEcho(namespace, "fancy", func(s *echov1.EchoSpec) {
			s.Image, s.Command, s.Args = "docker.io/library/other:1", []string{"sh"}, []string{"serve"}
			s.TargetPort = 80
			s.Resources.Limits = echov1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.0105")}
		})
		expectReady(echo)
		expectReady(other)
		edit(echo, func(s *echov1.EchoSpec) { *s = echov1.EchoSpec{Message: "xin chao operator"} })
		expectReady(echo)
		Expect(containerOf(echo)).To(Equal(containerOf(other)))
		pod := func(e *echov1.Echo) *corev1.PodSecurityContext {
			deployment := deploymentOf(e)
			Expect(komega.Get(deployment)()).To(Succeed())
			return deployment.Spec.Template.Spec.SecurityContext
		}
		Expect(pod(echo)).To(Equal(pod(other)))
	})

	It("reverts drift, and keeps the fields of external writers", func() {
		startOperator()
		echo := createEcho(namespace, "hello", everyChild)
		expectReady(echo)
		deployment, service, budget := deploymentOf(echo), serviceOf(echo), budgetOf(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(komega.Get(service)()).To(Succeed())
		Expect(komega.Get(budget)()).To(Succeed())
		want := deployment.DeepCopy()

		By("changing owned fields, removing the label, and adding fields of external writers")
		Eventually(komega.Update(deployment, func() {
			deployment.Spec.Replicas = ptr.To[int32](3)
			delete(deployment.Labels, children.ManagedByLabel)
			deployment.Labels["team"] = "blue"
			pod := &deployment.Spec.Template.Spec
			pod.Containers[0].Image = "docker.io/library/evil:1"
			pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "docker.io/library/mesh:1",
				SecurityContext: pod.Containers[0].SecurityContext})
		})).Should(Succeed())
		Eventually(komega.Update(service, func() {
			service.Spec.Selector = map[string]string{"app": "other"}
			service.Annotations = map[string]string{"lb": "off"}
		})).Should(Succeed())
		Expect(admin.Delete(ctx, budget)).To(Succeed())

		Eventually(komega.Object(deployment)).Should(SatisfyAll(
			HaveField("Spec.Replicas", Equal(ptr.To[int32](2))),
			HaveField("Spec.Template.Spec.Containers", ContainElement(want.Spec.Template.Spec.Containers[0])),
			HaveField("Spec.Template.Spec.Containers", ContainElement(HaveField("Name", "sidecar"))),
			HaveField("Labels", HaveKeyWithValue("team", "blue")),
			HaveField("Labels", HaveKeyWithValue(children.ManagedByLabel, children.ManagedBy)),
		))
		Eventually(komega.Object(service)).Should(SatisfyAll(
			HaveField("Spec.Selector", Equal(map[string]string{children.EchoLabel: "hello"})),
			HaveField("Annotations", HaveKeyWithValue("lb", "off")),
			HaveField("Spec.ClusterIP", Equal(service.Spec.ClusterIP)),
		))
		Eventually(komega.Get(budget)).Should(Succeed())
		wanted := budget.Spec.DeepCopy()
		Eventually(komega.Update(budget, func() { budget.Spec.MaxUnavailable = new(intstr.FromInt32(0)) })).Should(Succeed())
		Eventually(komega.Object(budget)).Should(HaveField("Spec", Equal(*wanted)))
		Expect(komega.Object(deployment)()).To(HaveField("UID", want.UID))

		By("deleting each child")
		for _, child := range childrenOf(echo) {
			Expect(komega.Get(child)()).To(Succeed())
			deleted := child.GetUID()
			Expect(admin.Delete(ctx, child)).To(Succeed())
			Eventually(komega.Object(child)).Should(HaveField("UID", Not(Equal(deleted))))
		}
		expectReady(echo)
	})

	It("reverts drift that happened while the operator was not running", func() {
		stop := startOperator()
		echo := createEcho(namespace, "hello", everyChild)
		expectReady(echo)
		stop()
		deployment, service, budget := deploymentOf(echo), serviceOf(echo), budgetOf(echo)
		Eventually(komega.Update(deployment, func() { deployment.Spec.Replicas = ptr.To[int32](3) })).Should(Succeed())
		Eventually(komega.Update(service, func() { service.Spec.Selector = nil })).Should(Succeed())
		Expect(admin.Delete(ctx, budget)).To(Succeed())
		startOperator()
		Eventually(komega.Object(deployment)).Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(2))))
		Eventually(komega.Object(service)).Should(HaveField("Spec.Selector", Not(BeEmpty())))
		Eventually(komega.Get(budget)).Should(Succeed())
	})

	It("corrects its status after an external write", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		expectReady(echo)
		want := echo.Status.DeepCopy()
		Eventually(komega.UpdateStatus(echo, func() { echo.Status.Ready, echo.Status.AvailableReplicas = "7/2", 7 })).Should(Succeed())
		Eventually(komega.Object(echo)).Should(HaveField("Status", Equal(*want)))
	})

	It("causes no requests once converged, even after a restart of the operator", func() {
		stop := startOperator()
		echoes := []*echov1.Echo{
			createEcho(namespace, "plain", twoPods),
			createEcho(namespace, "routed", routed("public")),
			createEcho(namespace, "every", everyChild),
			createEcho(namespace, "page", func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} }),
			createEcho(namespace, "own", func(s *echov1.EchoSpec) {
				s.Image, s.Command, s.TargetPort = "docker.io/library/other:1", []string{"serve"}, 443
				s.Resources.Requests = echov1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.0101")}
			}),
		}
		for _, echo := range echoes {
			expectReady(echo)
			expectReadyEvent(echo)
		}
		since := auditMark()
		Consistently(func() []string { return requestsSince(since) }).Should(BeEmpty())

		By("triggering another reconciliation of each Echo")
		for _, echo := range echoes {
			deployment := deploymentOf(echo)
			Eventually(komega.Update(deployment, func() { metav1.SetMetaDataLabel(&deployment.ObjectMeta, "note", "x") })).Should(Succeed())
		}
		Consistently(func() []string { return requestsSince(since) }).Should(BeEmpty())

		By("restarting the operator")
		stop()
		since = auditMark()
		startOperator()
		Consistently(func() []string { return withoutInitialLists(requestsSince(since)) }).Should(BeEmpty())
	})

	DescribeTable("is created with one write for each child and the status", func(settings func(*echov1.EchoSpec)) {
		startOperator()
		since := auditMark()
		echo := createEcho(namespace, "hello", settings)
		expectReady(echo)
		var creations []string
		for _, kind := range children.Kinds {
			if kind.Wanted(echo) {
				creations = append(creations, "create "+kind.Resource.Resource+"/ "+namespace+"/"+kind.ChildName(echo))
			}
		}
		writes := slices.DeleteFunc(withoutInitialLists(requestsSince(since)), func(request string) bool {
			return strings.HasPrefix(request, "update echoes/status") || strings.HasPrefix(request, "create events")
		})
		Expect(writes).To(ConsistOf(creations), "requests include a live read, or a second write of a child")
		Expect(requestsSince(since)).To(ContainElement("update echoes/status " + namespace + "/hello"))

		expectReady(echo)
		expectReadyEvent(echo)
		since = auditMark()
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		Eventually(komega.Get(deploymentOf(echo))).Should(MatchError(ContainSubstring("not found")))
		Expect(requestsSince(since)).To(BeEmpty())
	}, Entry("with two pods", twoPods), Entry("with every child", everyChild))

	It("has its children garbage collected, also while the operator is not running", func() {
		stop := startOperator()
		echo := createEcho(namespace, "hello", everyChild)
		expectReady(echo)
		stop()
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		for _, child := range childrenOf(echo) {
			Eventually(komega.Get(child)).Should(MatchError(ContainSubstring("not found")))
		}
	})

	It("gets no children while it is being deleted", func() {
		startOperator()
		echo := newEcho(namespace, "hello")
		echo.Finalizers = []string{"kkloud.io/test"}
		Expect(admin.Create(ctx, echo)).To(Succeed())
		expectReady(echo)
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		// Watches are not ordered: the operator may create children until it has seen the deletion.
		Eventually(func(g Gomega) {
			g.Expect(client.IgnoreNotFound(admin.Delete(ctx, serviceOf(echo)))).To(Succeed())
			g.Consistently(komega.Get(serviceOf(echo))).Should(MatchError(ContainSubstring("not found")))
		}).Should(Succeed())
		Eventually(komega.Update(echo, func() { echo.Finalizers = nil })).Should(Succeed())
	})

	It("is reconciled only in the watched namespaces", func() {
		second, third := newNamespace(), newNamespace()
		startOperator(namespace, second)
		unwatched := createEcho(third, "hello")
		for _, watched := range []string{namespace, second} {
			echo := createEcho(watched, "hello", twoPods)
			expectReady(echo)
			edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 1 })
			expectReady(echo)
		}
		Consistently(komega.Get(deploymentOf(unwatched))).Should(MatchError(ContainSubstring("not found")))
	})

	It("is deleted with its namespace", func() {
		startOperator()
		expectReady(createEcho(namespace, "hello"))
		Expect(admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		Eventually(func() (int, error) {
			var echoes echov1.EchoList
			err := admin.List(ctx, &echoes, client.InNamespace(namespace))
			return len(echoes.Items), err
		}).Should(BeZero())
	})

	It("is not delayed by an Echo that cannot converge", func() {
		startOperator()
		Expect(admin.Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-blocked"},
			Spec:       otherDeploymentSpec(),
		})).To(Succeed())
		expectCondition(createEcho(namespace, "blocked"), echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
		start := time.Now()
		expectReady(createEcho(namespace, "free"))
		Expect(time.Since(start)).To(BeNumerically("<", 30*time.Second))

		By("retrying the blocked Echo at increasing intervals")
		since := auditMark()
		attempts := func() int {
			return len(slices.DeleteFunc(requestsSince(since), func(r string) bool {
				return r != "get deployments/ "+namespace+"/echo-blocked"
			}))
		}
		Consistently(attempts, "5s").Should(BeNumerically("<=", 4))
		Eventually(attempts, "35s").Should(BeNumerically(">=", 1))
	})
})

// otherDeploymentSpec returns the spec of a Deployment that has nothing to do with Echoes.
func otherDeploymentSpec() appsv1.DeploymentSpec {
	labels := map[string]string{"app": "other"}
	return appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](0),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}
}

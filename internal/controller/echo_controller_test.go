package controller

import (
	"slices"
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

	It("becomes a Deployment, a Service and a true status", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		Expect(echo.Status.Ready).To(Equal("2/2"))
		Expect(echo.Status.Replicas).To(Equal(int32(2)))
		Expect(echo.Status.AvailableReplicas).To(Equal(int32(2)))
		Expect(echo.Status.URL).To(Equal("http://echo-hello." + namespace + ".svc"))
		Expect(echo.Status.ObservedGeneration).To(Equal(echo.Generation))
		Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionAvailable)).To(BeTrue())
		Expect(meta.IsStatusConditionFalse(echo.Status.Conditions, echov1.ConditionProgressing)).To(BeTrue())
		Expect(meta.IsStatusConditionFalse(echo.Status.Conditions, echov1.ConditionDegraded)).To(BeTrue())

		container := containerOf(echo)
		Expect(container.Image).To(Equal(serverImage))
		Expect(container.Args).To(Equal([]string{"-text=xin chao operator", "-listen=:5678"}))
		for _, child := range []client.Object{deploymentOf(echo), serviceOf(echo), budgetOf(echo)} {
			Expect(komega.Get(child)()).To(Succeed())
			Expect(child.GetOwnerReferences()).To(Equal([]metav1.OwnerReference{{
				APIVersion: "kkloud.io/v1", Kind: "Echo", Name: "hello", UID: echo.UID,
				Controller: new(true), BlockOwnerDeletion: new(true),
			}}))
			Expect(child.GetLabels()).To(HaveKeyWithValue(children.ManagedByLabel, children.ManagedBy))
		}
		Eventually(func() []string { return eventsOf(echo) }).Should(ConsistOf("Normal Ready"))
	})

	It("follows an edit, and needs no budget for one pod", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Message, s.Replicas, s.Port = "changed", 1, 8080 })
		becomesReady(echo)
		Expect(containerOf(echo).Args[0]).To(Equal("-text=changed"))
		Expect(echo.Status.URL).To(HaveSuffix(":8080"))
		Expect(komega.Object(serviceOf(echo))()).To(HaveField("Spec.Ports", ConsistOf(HaveField("Port", int32(8080)))))
		Eventually(komega.Get(budgetOf(echo))).Should(MatchError(ContainSubstring("not found")))
	})

	It("scales through the scale subresource", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		scale := &autoscalingv1.Scale{}
		Expect(admin.SubResource("scale").Get(ctx, echo, scale)).To(Succeed())
		Expect(scale.Status.Selector).To(Equal("kkloud.io/echo=hello"))
		Expect(scale.Status.Replicas).To(Equal(int32(2)))
		scale.Spec.Replicas = 4
		Expect(admin.SubResource("scale").Update(ctx, echo, client.WithSubResourceBody(scale))).To(Succeed())
		becomesReady(echo)
		Expect(echo.Status.Ready).To(Equal("4/4"))
	})

	It("returns to the default what the user unsets", func() {
		startOperator()
		other := createEcho(namespace, "plain")
		echo := createEcho(namespace, "fancy", func(s *echov1.EchoSpec) {
			s.Image, s.Command, s.Args = "docker.io/library/other:1", []string{"sh"}, []string{"serve"}
			s.Page = &echov1.Page{Title: "t"}
			s.TargetPort = 80
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.0105")}
		})
		becomesReady(echo)
		becomesReady(other)
		edit(echo, func(s *echov1.EchoSpec) { *s = echov1.EchoSpec{Message: "xin chao operator"} })
		becomesReady(echo)
		Expect(containerOf(echo)).To(Equal(containerOf(other)))
		pod := func(e *echov1.Echo) *corev1.PodSecurityContext {
			deployment := deploymentOf(e)
			Expect(komega.Get(deployment)()).To(Succeed())
			return deployment.Spec.Template.Spec.SecurityContext
		}
		Expect(pod(echo)).To(Equal(pod(other)))
	})

	It("undoes drift, and takes nothing from others", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		deployment, service, budget := deploymentOf(echo), serviceOf(echo), budgetOf(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(komega.Get(service)()).To(Succeed())
		Expect(komega.Get(budget)()).To(Succeed())
		want := deployment.DeepCopy()

		By("changing owned fields, dropping the label, and adding what others add")
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

		By("deleting a child")
		Expect(admin.Delete(ctx, service)).To(Succeed())
		Eventually(komega.Object(serviceOf(echo))).Should(HaveField("UID", Not(Equal(service.UID))))
		becomesReady(echo)
	})

	It("undoes at its start what others did while it was away", func() {
		stop := startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
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

	It("has a status that is corrected, whoever wrote it", func() {
		startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		truth := echo.Status.DeepCopy()
		Eventually(komega.UpdateStatus(echo, func() { echo.Status.Ready, echo.Status.AvailableReplicas = "7/2", 7 })).Should(Succeed())
		Eventually(komega.Object(echo)).Should(HaveField("Status", Equal(*truth)))
	})

	It("costs nothing once converged, also when the operator restarts", func() {
		stop := startOperator()
		echoes := []*echov1.Echo{
			createEcho(namespace, "plain", twoPods),
			createEcho(namespace, "page", func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} }),
			createEcho(namespace, "own", func(s *echov1.EchoSpec) {
				s.Image, s.Command, s.TargetPort = "docker.io/library/other:1", []string{"serve"}, 443
				s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.0101")}
			}),
		}
		for _, echo := range echoes {
			becomesReady(echo)
			Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Normal Ready"))
		}
		since := mark()
		Consistently(func() []string { return requests(since) }).Should(BeEmpty())

		By("bringing every Echo into another pass")
		for _, echo := range echoes {
			deployment := deploymentOf(echo)
			Eventually(komega.Update(deployment, func() { metav1.SetMetaDataLabel(&deployment.ObjectMeta, "note", "x") })).Should(Succeed())
		}
		Consistently(func() []string { return requests(since) }).Should(BeEmpty())

		By("restarting the operator")
		stop()
		since = mark()
		startOperator()
		Consistently(func() []string { return startUp(requests(since)) }).Should(BeEmpty())
	})

	It("is written with few requests", func() {
		startOperator()
		since := mark()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		Expect(requests(since)).To(ContainElements(
			"create deployments/ "+namespace+"/echo-hello",
			"create services/ "+namespace+"/echo-hello",
			"create poddisruptionbudgets/ "+namespace+"/echo-hello",
			"update echoes/status "+namespace+"/hello",
		))
		Expect(requests(since)).NotTo(ContainElement(HavePrefix("get ")), "a live read")

		becomesReady(echo)
		since = mark()
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		Eventually(komega.Get(deploymentOf(echo))).Should(MatchError(ContainSubstring("not found")))
		Expect(requests(since)).To(BeEmpty())
	})

	It("leaves its children to the garbage collector, also while the operator is down", func() {
		stop := startOperator()
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		stop()
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		for _, child := range []client.Object{deploymentOf(echo), serviceOf(echo), budgetOf(echo)} {
			Eventually(komega.Get(child)).Should(MatchError(ContainSubstring("not found")))
		}
	})

	It("creates nothing while it is being deleted", func() {
		startOperator()
		echo := newEcho(namespace, "hello")
		echo.Finalizers = []string{"kkloud.io/test"}
		Expect(admin.Create(ctx, echo)).To(Succeed())
		becomesReady(echo)
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		// Two watches have no order: until the operator has seen the Echo's deletion it may still create.
		Eventually(func(g Gomega) {
			g.Expect(client.IgnoreNotFound(admin.Delete(ctx, serviceOf(echo)))).To(Succeed())
			g.Consistently(komega.Get(serviceOf(echo))).Should(MatchError(ContainSubstring("not found")))
		}).Should(Succeed())
		Eventually(komega.Update(echo, func() { echo.Finalizers = nil })).Should(Succeed())
	})

	It("is seen only in the namespaces to watch", func() {
		second, third := newNamespace(), newNamespace()
		startOperator(namespace, second)
		unseen := createEcho(third, "hello")
		for _, watched := range []string{namespace, second} {
			echo := createEcho(watched, "hello", twoPods)
			becomesReady(echo)
			edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 1 })
			becomesReady(echo)
		}
		Consistently(komega.Get(deploymentOf(unseen))).Should(MatchError(ContainSubstring("not found")))
	})

	It("survives the end of its namespace", func() {
		startOperator()
		becomesReady(createEcho(namespace, "hello"))
		Expect(admin.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		Eventually(func() (int, error) {
			var echoes echov1.EchoList
			err := admin.List(ctx, &echoes, client.InNamespace(namespace))
			return len(echoes.Items), err
		}).Should(BeZero())
	})

	It("is not held up by others that cannot converge", func() {
		startOperator()
		Expect(admin.Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-blocked"},
			Spec:       foreignSpec(),
		})).To(Succeed())
		becomes(createEcho(namespace, "blocked"), echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
		start := time.Now()
		becomesReady(createEcho(namespace, "free"))
		Expect(time.Since(start)).To(BeNumerically("<", 10*time.Second))

		By("trying the one that is held up again, ever more seldom")
		since := mark()
		attempts := func() int {
			return len(slices.DeleteFunc(requests(since), func(r string) bool {
				return r != "create deployments/ "+namespace+"/echo-blocked"
			}))
		}
		Consistently(attempts, "5s").Should(BeNumerically("<=", 4))
		Expect(attempts()).To(BeNumerically(">=", 1))
	})
})

func foreignSpec() appsv1.DeploymentSpec {
	labels := map[string]string{"app": "foreign"}
	return appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](0),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		},
	}
}

package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/metrics"
)

var _ = Describe("What belongs to somebody else", func() {
	DescribeTable("is left as it is, byte for byte, until it is gone",
		func(foreign func(meta metav1.ObjectMeta) client.Object, labels map[string]string) {
			startOperator()
			namespace := newNamespace()
			object := foreign(metav1.ObjectMeta{Namespace: namespace, Name: "echo-hello", Labels: labels})
			Expect(admin.Create(ctx, object)).To(Succeed())
			version := object.GetResourceVersion()

			echo := createEcho(namespace, "hello", twoPods)
			becomes(echo, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
			Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("echo-hello exists and is not controlled by this Echo"))
			Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Warning Conflict"))
			edit(echo, func(s *echov1.EchoSpec) { s.Message, s.Port = "other", 81 })
			becomes(echo, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			Expect(object.GetUID()).NotTo(BeEmpty())
			Expect(object.GetOwnerReferences()).To(BeEmpty())
			Expect(unchanged(object, version)).To(BeTrue())

			Expect(admin.Delete(ctx, object)).To(Succeed())
			becomesReady(echo)
		},
		Entry("a Service", func(m metav1.ObjectMeta) client.Object {
			return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		}, nil),
		Entry("a Deployment", func(m metav1.ObjectMeta) client.Object {
			return &appsv1.Deployment{ObjectMeta: m, Spec: foreignSpec()}
		}, nil),
		Entry("a PodDisruptionBudget", func(m metav1.ObjectMeta) client.Object {
			return &policyv1.PodDisruptionBudget{ObjectMeta: m}
		}, nil),
		Entry("a Service that bears the operator's label", func(m metav1.ObjectMeta) client.Object {
			return &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		}, map[string]string{children.ManagedByLabel: children.ManagedBy}),
	)

	It("is also what belonged to an earlier Echo of the same name", func() {
		namespace := newNamespace()
		earlier := createEcho(namespace, "hello")
		service := serviceOf(earlier)
		children.Service(service, earlier)
		service.OwnerReferences[0].UID = "00000000-0000-0000-0000-000000000000"
		service.Finalizers = []string{"kkloud.io/test"} // Keeps the garbage collector from removing it.
		Expect(admin.Create(ctx, service)).To(Succeed())
		startOperator()
		becomes(earlier, echov1.ConditionDegraded, metav1.ConditionTrue, echov1.ReasonConflict)
		Eventually(komega.Update(service, func() { service.Finalizers = nil })).Should(Succeed())
		becomesReady(earlier)
	})

	It("does not matter where the Echo wants no such child", func() {
		startOperator()
		namespace := newNamespace()
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "echo-hello",
			Labels: map[string]string{children.ManagedByLabel: children.ManagedBy}}}
		Expect(admin.Create(ctx, budget)).To(Succeed())
		becomesReady(createEcho(namespace, "hello"))
		Expect(komega.Get(budget)()).To(Succeed())
	})
})

var _ = Describe("A child, where the cache lags behind its Echo,", func() {
	It("is not put back to an earlier spec", func() {
		stop := startOperator()
		echo := createEcho(newNamespace(), "hello")
		becomesReady(echo)
		stale := echo.DeepCopy()
		edit(echo, func(s *echov1.EchoSpec) { s.Message, s.Replicas = "newer", 3 })
		becomesReady(echo)
		stop()

		reconciler := &EchoReconciler{Client: operatorClient(), APIReader: operatorClient(), ServerImage: serverImage}
		_, err := reconciler.applyChildren(ctx, stale)
		Expect(err).To(MatchError(errStaleEcho))
		Expect(containerOf(echo).Args).To(ContainElement("-text=newer"))
		Expect(komega.Get(budgetOf(echo))()).To(Succeed(), "a budget of the newest spec is not removed")
		Expect(retry(err)).To(HaveField("RequeueAfter", staleRetry))
	})

	It("is not made anew where the Echo is gone", func() {
		stop := startOperator()
		echo := createEcho(newNamespace(), "hello")
		becomesReady(echo)
		stop()
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		Eventually(komega.Get(serviceOf(echo))).ShouldNot(Succeed())
		since := mark()

		reconciler := &EchoReconciler{Client: operatorClient(), APIReader: operatorClient(), ServerImage: serverImage}
		_, err := reconciler.applyChildren(ctx, echo)
		Expect(err).To(MatchError(errStaleEcho))
		Expect(requests(since)).To(ConsistOf(
			"get services/ "+echo.Namespace+"/echo-hello", "get echoes/ "+echo.Namespace+"/hello"))
	})

	It("is written all the same where only its annotation says so", func() {
		startOperator()
		echo := createEcho(newNamespace(), "hello")
		becomesReady(echo)
		deployment := deploymentOf(echo)
		Eventually(komega.Update(deployment, func() {
			children.SetGeneration(deployment, echo.Generation+7)
			deployment.Spec.Replicas = ptr.To[int32](3)
		})).Should(Succeed())
		Eventually(komega.Object(deployment)).Should(SatisfyAll(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(1))),
			WithTransform(func(d *appsv1.Deployment) int64 { return children.Generation(d) }, Equal(echo.Generation))))
	})
})

var _ = Describe("A read that waits for a write that nobody will see", func() {
	It("goes on with what the cache has", func() {
		echo := createEcho(newNamespace(), "hello")
		withWatch, err := client.NewWithWatch(operator, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		waiting := interceptor.NewClient(withWatch, interceptor.Funcs{
			Get: func(c context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
				<-c.Done()
				return fmt.Errorf("wait for the cache: %w", c.Err())
			},
			List: func(c context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
				<-c.Done()
				return fmt.Errorf("wait for the cache: %w", c.Err())
			},
		})
		impatient := impatientClient{Client: waiting, cache: admin}
		var found echov1.Echo
		Expect(impatient.Get(ctx, client.ObjectKeyFromObject(echo), &found)).To(Succeed())
		Expect(found.UID).To(Equal(echo.UID))
		var list echov1.EchoList
		Expect(impatient.List(ctx, &list, client.InNamespace(echo.Namespace))).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
	})
})

// operatorClient has the operator's rights, and no cache.
func operatorClient() client.Client {
	GinkgoHelper()
	c, err := client.New(operator, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// unchanged tells whether the object was not written but by the controllers of its kind,
// which fill in the status of a Deployment or a budget.
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

var _ = Describe("The status", func() {
	var namespace string

	BeforeEach(func() {
		namespace = newNamespace()
		startOperator()
	})

	DescribeTable("tells why pods fail, and a good spec recovers",
		func(image, reason, words string) {
			echo := createEcho(namespace, "hello", twoPods)
			becomesReady(echo)
			edit(echo, func(s *echov1.EchoSpec) { s.Image = image })
			becomes(echo, echov1.ConditionReady, metav1.ConditionFalse, reason)
			Expect(message(echo, echov1.ConditionDegraded)).To(ContainSubstring(words))
			Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionAvailable)).To(BeTrue(), "the old pods serve on")
			Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Warning " + reason))
			edit(echo, func(s *echov1.EchoSpec) { s.Image = "" })
			becomesReady(echo)
		},
		Entry("an image that does not exist", "docker.io/library/server:absent", echov1.ReasonImagePullFailed, "server:absent: not found"),
		Entry("a crash loop", "docker.io/library/server:crash", echov1.ReasonCrashLooping, "exited with code 127: out of tune"),
		Entry("no node with room", "docker.io/library/server:huge", echov1.ReasonUnschedulable, "Insufficient memory"),
	)

	It("tells of a quota for pods in the API server's words", func() {
		noMore(namespace, corev1.ResourcePods)
		echo := createEcho(namespace, "hello")
		becomes(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonPodsRejected)
		Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("exceeded quota: small"))
	})

	It("tells of a quota for Services in the API server's words, and recovers by itself", func() {
		quota := noMore(namespace, corev1.ResourceServices)
		echo := createEcho(namespace, "hello")
		becomes(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonRejected)
		Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("exceeded quota: small"))
		becomes(echo, echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing)
		Expect(komega.Get(deploymentOf(echo))()).To(Succeed(), "the other children are applied all the same")
		Expect(admin.Delete(ctx, quota)).To(Succeed())
		becomesReady(echo)
	})

	DescribeTable("tells of a policy that says no to a change", func(reason metav1.StatusReason) {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: ptr.To(admissionregistrationv1.Fail),
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
					},
				}}},
				Validations: []admissionregistrationv1.Validation{{
					Expression: "object.metadata.namespace != '" + namespace + "' || object.spec.replicas < 3", Message: "two are enough",
					Reason: &reason,
				}},
			},
		}
		Expect(admin.Create(ctx, policy)).To(Succeed())
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
		}
		Expect(admin.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func() {
			Expect(client.IgnoreNotFound(admin.Delete(ctx, binding))).To(Succeed())
			Expect(admin.Delete(ctx, policy)).To(Succeed())
		})
		echo := createEcho(namespace, "hello", twoPods)
		becomesReady(echo)
		Eventually(func(g Gomega) { // The policy takes a moment to be in force.
			edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 7 - s.Replicas })
			becomesSoon(g, echo, echov1.ReasonRejected)
		}, "30s").Should(Succeed())
		Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("two are enough"))
		Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionAvailable)).To(BeTrue())
	},
		// A policy may also say forbidden, as a quota does.
		Entry("as invalid", metav1.StatusReasonInvalid),
		Entry("as too large", metav1.StatusReasonRequestEntityTooLarge),
	)
})

// noMore creates a quota that lets no more of the resource into the namespace.
func noMore(namespace string, name corev1.ResourceName) *corev1.ResourceQuota {
	GinkgoHelper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse("0")}},
	}
	Expect(admin.Create(ctx, quota)).To(Succeed())
	Eventually(komega.Object(quota)).Should(HaveField("Status.Hard", Not(BeEmpty())))
	return quota
}

// becomesSoon waits two seconds for the reason of Ready.
func becomesSoon(g Gomega, echo *echov1.Echo, reason string) {
	g.Eventually(komega.Object(echo), "2s").Should(HaveField("Status.Conditions", ContainElement(SatisfyAll(
		HaveField("Type", echov1.ConditionReady), HaveField("Reason", reason)))))
}

// passAgent marks requests of the operator's user that an operator would not make: its
// reads come from a cache.
const passAgent = "a-single-pass"

// These need answers that a healthy API server does not give.
var _ = Describe("A pass", func() {
	var (
		echo      *echov1.Echo
		functions interceptor.Funcs
	)

	pass := func() (recorder *events.FakeRecorder, retried bool, err error) {
		config := rest.CopyConfig(operator)
		config.UserAgent = passAgent
		withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		if functions.List == nil { // Only a cache knows the index.
			functions.List = func(c context.Context, w client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				return w.List(c, list, client.InNamespace(echo.Namespace), client.MatchingLabels(children.Selector(echo)))
			}
		}
		recorder = events.NewFakeRecorder(10)
		live := interceptor.NewClient(withWatch, functions)
		reconciler := &EchoReconciler{
			Client: live, APIReader: withWatch, Recorder: recorder, ServerImage: serverImage,
			Metrics: metrics.New(prometheus.NewRegistry(), "test"),
		}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
		result, err := reconciler.Reconcile(ctx, echo)
		return recorder, result.RequeueAfter > 0, err
	}

	BeforeEach(func() {
		functions = interceptor.Funcs{}
		echo = createEcho(newNamespace(), "hello", twoPods)
		_, _, err := pass()
		Expect(err).NotTo(HaveOccurred())
		Expect(komega.Get(deploymentOf(echo))()).To(Succeed())
	})

	It("on a stale child changes nothing and comes again", func() {
		stale := deploymentOf(echo)
		Expect(komega.Get(stale)()).To(Succeed())
		newer := stale.DeepCopy()
		Eventually(komega.Update(newer, func() { newer.Spec.Paused = true })).Should(Succeed())
		functions.Get = func(c context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if deployment, ok := object.(*appsv1.Deployment); ok {
				stale.DeepCopyInto(deployment)
				return nil
			}
			return w.Get(c, key, object)
		}
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		_, retried, err := pass()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeTrue())
		Expect(komega.Object(deploymentOf(echo))()).To(HaveField("Generation", newer.Generation))
	})

	It("on a stale Echo writes no status", func() {
		stale := echo.DeepCopy()
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		reconciler := &EchoReconciler{Client: admin, Recorder: events.NewFakeRecorder(10)}
		err := reconciler.writeStatus(ctx, stale, echov1.EchoStatus{Ready: "9/9"})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "got %v", err)
	})

	It("says so when what it wrote was changed on the way", func() {
		functions.Update = func(c context.Context, w client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			err := w.Update(c, object, options...)
			if deployment, ok := object.(*appsv1.Deployment); ok {
				deployment.Spec.Template.Spec.Containers[0].Image = "docker.io/library/mirror:1"
			}
			return err
		}
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		Eventually(func(g Gomega) { // A controller may have written the Deployment in between.
			_, retried, err := pass()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(retried).To(BeTrue())
			g.Expect(komega.Object(echo)()).To(HaveField("Status.Conditions", ContainElement(SatisfyAll(
				HaveField("Type", echov1.ConditionReady), HaveField("Reason", echov1.ReasonRejected)))))
		}).Should(Succeed())
		Expect(komega.Get(echo)()).To(Succeed())
		Expect(message(echo, echov1.ConditionDegraded)).To(SatisfyAll(
			ContainSubstring("an admission policy or webhook"), ContainSubstring(`"image":"`+serverImage+`"`)))
	})

	It("removes a budget only in the version that it saw", func() {
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 1 })
		functions.Get = func(c context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			err := w.Get(c, key, object)
			if budget, ok := object.(*policyv1.PodDisruptionBudget); ok && err == nil {
				budget.ResourceVersion = "1"
			}
			return err
		}
		_, retried, err := pass()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeTrue())
		Expect(komega.Get(budgetOf(echo))()).To(Succeed())
	})

	It("adopts its own child when the answer to its creation was lost", func() {
		functions.Get = func(c context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if _, ok := object.(*corev1.Service); ok {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, key.Name)
			}
			return w.Get(c, key, object)
		}
		_, retried, err := pass()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeFalse())
	})

	It("waits for a child that is on its way out", func() {
		service := serviceOf(echo)
		Eventually(komega.Update(service, func() { service.Finalizers = []string{"kkloud.io/test"} })).Should(Succeed())
		Expect(admin.Delete(ctx, service)).To(Succeed())
		_, _, err := pass()
		Expect(err).NotTo(HaveOccurred())
		Expect(komega.Object(echo)()).To(HaveField("Status.Conditions", ContainElement(SatisfyAll(
			HaveField("Type", echov1.ConditionAvailable), HaveField("Reason", echov1.ReasonNotServing)))))
		Eventually(komega.Update(service, func() { service.Finalizers = nil })).Should(Succeed())
	})

	DescribeTable("that the API server cannot answer is tried again by the queue",
		func(failing interceptor.Funcs) {
			functions = failing
			edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
			before := echo.Status.DeepCopy()
			Eventually(func() error { // A controller may have written the Deployment in between.
				_, _, err := pass()
				return err
			}).Should(MatchError(ContainSubstring(errUnavailable.Error())))
			Expect(komega.Object(echo)()).To(HaveField("Status", Equal(*before)))
		},
		Entry("on reading", interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errUnavailable
		}}),
		Entry("on listing pods", interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errUnavailable
		}}),
		Entry("on writing", interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errUnavailable
		}}),
		Entry("on writing the status", interceptor.Funcs{SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return errUnavailable
		}}),
	)

	It("that meets the end of its namespace is not tried again", func() {
		functions.Update = func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			err := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("being terminated"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		}
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		_, retried, err := pass()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeFalse())
	})

	It("keeps a long error out of the log, where others may have put what the user wrote", func() {
		functions.Update = func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusTeapot, Message: strings.Repeat("wrote\n", 1000)}}
		}
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		_, _, err := pass()
		Expect(err).To(MatchError(HavePrefix("wrote wrote ")))
		Expect([]rune(err.Error())).To(HaveLen(maxNote))
	})

	It("keeps a long refusal out of its events", func() {
		long := apierrors.NewInvalid(schema.GroupKind{}, "echo-hello", nil)
		long.ErrStatus.Message = string(make([]rune, 5000))
		functions.Update = func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return long }
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		recorder, retried, err := pass()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeTrue())
		Expect(len([]rune(<-recorder.Events))).To(BeNumerically("<=", maxNote+50))
	})
})

var errUnavailable = &apierrors.StatusError{ErrStatus: metav1.Status{
	Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "away",
}}

package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"
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
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/metrics"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

var _ = Describe("The status", func() {
	var namespace string

	BeforeEach(func() {
		namespace = newNamespace()
		startOperator()
	})

	DescribeTable("reports why pods fail, and recovers with a valid spec",
		func(image, reason, text string) {
			echo := createEcho(namespace, "hello", twoPods)
			expectReady(echo)
			edit(echo, func(s *echov1.EchoSpec) { s.Image = image })
			expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, reason)
			Expect(message(echo, echov1.ConditionDegraded)).To(ContainSubstring(text))
			Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionAvailable)).To(BeTrue(), "the old pods no longer serve")
			Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Warning " + reason))
			edit(echo, func(s *echov1.EchoSpec) { s.Image = "" })
			expectReady(echo)
		},
		Entry("an image that does not exist", "docker.io/library/server:absent", echov1.ReasonImagePullFailed, "server:absent: not found"),
		Entry("a crash loop", "docker.io/library/server:crash", echov1.ReasonCrashLooping, "exited with code 127: out of tune"),
		Entry("insufficient memory", "docker.io/library/server:huge", echov1.ReasonUnschedulable, "Insufficient memory"),
	)

	It("reports an image that would run as root, until the Echo declares another user", func() {
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Image = controlplane.RootImage })
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonContainerCreateFailed)
		Expect(message(echo, echov1.ConditionReady)).To(HaveSuffix("image will run as root: set spec.pod.runAsUser"))
		edit(echo, func(s *echov1.EchoSpec) { s.Pod = &echov1.PodSettings{RunAsUser: 65532} })
		expectReady(echo)
		Expect(newestPod(echo).Spec.SecurityContext.RunAsUser).To(HaveValue(BeEquivalentTo(65532)))
	})

	It("reports a quota for pods with the message of the API server", func() {
		exhaustQuota(namespace, corev1.ResourcePods)
		echo := createEcho(namespace, "hello")
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonPodsRejected)
		Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("exceeded quota: small"))
	})

	It("replaces pods under a quota with room for one as soon as the old ones make room, without a failure", func() {
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) {
			s.Replicas, s.Pod = 2, &echov1.PodSettings{Annotations: echov1.Annotations{controlplane.StopsAfter: "12s"}}
		})
		expectReady(echo)
		createQuota(namespace, corev1.ResourcePods, "3")
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "changed" })
		Eventually(func() string { return readyMessage(echo) }).Should(ContainSubstring("the others wait: "))
		// By itself, the ReplicaSet controller doubles its delay: the attempt after that at 10 s is at 20 s.
		Eventually(komega.Object(deploymentOf(echo)), "18s").Should(HaveField("Status.UpdatedReplicas", BeEquivalentTo(2)))
		expectReady(echo)
		Expect(eventsOf(echo)).NotTo(ContainElement(HavePrefix("Warning")))
	})

	It("reports a quota for Services with the message of the API server, and recovers after its deletion", func() {
		quota := exhaustQuota(namespace, corev1.ResourceServices)
		echo := createEcho(namespace, "hello")
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonRejected)
		Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("exceeded quota: small"))
		expectCondition(echo, echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing)
		Expect(komega.Get(deploymentOf(echo))()).To(Succeed(), "the Deployment was not created")
		Expect(admin.Delete(ctx, quota)).To(Succeed())
		expectReady(echo)
	})

	DescribeTable("reports an admission policy that rejects a change", func(reason metav1.StatusReason) {
		validate(namespace, createAndUpdate("apps", "deployments"), admissionregistrationv1.Validation{Expression: "object.spec.replicas < 3", Message: "two are enough", Reason: &reason})
		echo := createEcho(namespace, "hello", twoPods)
		expectReady(echo)
		Eventually(func(g Gomega) { // The policy takes effect after a moment.
			edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 7 - s.Replicas })
			expectReadyReason(g, echo, echov1.ReasonRejected)
		}, "30s").Should(Succeed())
		Expect(message(echo, echov1.ConditionReady)).To(ContainSubstring("two are enough"))
		Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionAvailable)).To(BeTrue())
	},
		// The reason Forbidden is covered by the quota.
		Entry("as Invalid", metav1.StatusReasonInvalid),
		Entry("as RequestEntityTooLarge", metav1.StatusReasonRequestEntityTooLarge),
	)
})

func createAndUpdate(group, resource string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
	}
}

// validate has an admission policy validate requests in the namespace.
func validate(namespace string, rule admissionregistrationv1.RuleWithOperations, validation admissionregistrationv1.Validation) (lift func()) {
	GinkgoHelper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: ptr.To(admissionregistrationv1.Fail),
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
				ResourceRules:     []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
			Validations: []admissionregistrationv1.Validation{validation},
		},
	}
	Expect(admin.Create(ctx, policy)).To(Succeed())
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: namespace, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}},
	}
	Expect(admin.Create(ctx, binding)).To(Succeed())
	lift = func() {
		Expect(client.IgnoreNotFound(admin.Delete(ctx, binding))).To(Succeed())
		Expect(client.IgnoreNotFound(admin.Delete(ctx, policy))).To(Succeed())
	}
	DeferCleanup(lift)
	return lift
}

// exhaustQuota creates a quota that allows no objects of the resource in the namespace.
func exhaustQuota(namespace string, name corev1.ResourceName) *corev1.ResourceQuota {
	GinkgoHelper()
	return createQuota(namespace, name, "0")
}

func createQuota(namespace string, name corev1.ResourceName, hard string) *corev1.ResourceQuota {
	GinkgoHelper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "small"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{name: resource.MustParse(hard)}},
	}
	Expect(admin.Create(ctx, quota)).To(Succeed())
	Eventually(komega.Object(quota)).Should(HaveField("Status.Hard", Not(BeEmpty())))
	return quota
}

func readyMessage(echo *echov1.Echo) string {
	Expect(komega.Get(echo)()).To(Succeed())
	return message(echo, echov1.ConditionReady)
}

// expectReadyReason waits two seconds until Ready has the reason.
func expectReadyReason(g Gomega, echo *echov1.Echo, reason string) {
	g.Eventually(komega.Object(echo), "2s").Should(HaveField("Status.Conditions", ContainElement(SatisfyAll(
		HaveField("Type", echov1.ConditionReady), HaveField("Reason", reason)))))
}

// directUserAgent marks requests of a reconciler without a cache. It reads from the API server,
// which needs permissions that the operator does not have to use.
const directUserAgent = "single-reconciliation"

// These specs inject responses that a healthy API server does not return.
var _ = Describe("A reconciliation", func() {
	var (
		echo      *echov1.Echo
		functions interceptor.Funcs
	)

	reconcileOnce := func() (recorder *events.FakeRecorder, retried bool, err error) {
		config := rest.CopyConfig(operator)
		config.UserAgent = directUserAgent
		withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		if functions.List == nil { // Only a cache has the index.
			functions.List = func(c context.Context, w client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
				return w.List(c, list, client.InNamespace(echo.Namespace), client.MatchingLabels(children.Selector(echo)))
			}
		}
		recorder = events.NewFakeRecorder(10)
		live := interceptor.NewClient(withWatch, functions)
		reconciler := &EchoReconciler{
			Client: live, APIReader: withWatch, Recorder: recorder, ServerImage: serverImage, Optional: informers.NewOptional(0),
			Metrics: metrics.New(prometheus.NewRegistry(), "test"),
		}
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
		result, err := reconciler.reconcileEcho(ctx, echo)
		isSoon := result.RequeueAfter > 0 && result.RequeueAfter <= staleRetry // Not the deadline of the rollout.
		return recorder, isSoon, err
	}

	BeforeEach(func() {
		functions = interceptor.Funcs{}
		echo = createEcho(newNamespace(), "hello", twoPods)
		_, _, err := reconcileOnce()
		Expect(err).NotTo(HaveOccurred())
		Expect(komega.Get(deploymentOf(echo))()).To(Succeed())
	})

	kind := children.Kinds[slices.IndexFunc(children.Kinds, func(c children.Kind) bool { return c.Name == "Deployment" })]

	DescribeTable("of a stale child writes nothing, reports nothing and is retried", func(pausedBefore, pausedNow bool) {
		stale := deploymentOf(echo)
		Eventually(komega.Update(stale, func() { stale.Spec.Paused = pausedBefore })).Should(Succeed())
		newer := stale.DeepCopy()
		Eventually(komega.Update(newer, func() {
			newer.Spec.Paused = pausedNow
			newer.Annotations["example.com/changed"] = "true"
		})).Should(Succeed())
		functions.Get = func(c context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if deployment, ok := object.(*appsv1.Deployment); ok {
				stale.DeepCopyInto(deployment)
				return nil
			}
			return w.Get(c, key, object)
		}
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		recorder, retried, err := reconcileOnce()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeTrue())
		Expect(recorder.Events).To(BeEmpty())
		Expect(komega.Object(deploymentOf(echo))()).To(HaveField("Generation", newer.Generation))
	},
		Entry("which was changed", false, false),
		Entry("which was paused", false, true),
		// The patch of the stale child removes a field that the child no longer has.
		Entry("which was resumed", true, false),
	)

	DescribeTable("of a stale child reports a rejection that came late", func(err error) {
		stale := deploymentOf(echo)
		Expect(komega.Get(stale)()).To(Succeed())
		stale.ResourceVersion = "1"
		rejected := (&EchoReconciler{APIReader: admin}).newReconciliation(echo).child(kind)
		Expect(rejected.rejectUpdate(ctx, stale, err, slowFailure)).To(MatchError(errStaleChild))
		Expect(rejected.rejectUpdate(ctx, stale, err, slowFailure+1)).To(Succeed())
		Expect(rejected.readOnly).To(BeTrue(), "the other children are written before the status reports the failure")
		Expect(rejected.failure).To(HaveValue(HaveField("Message", And(HavePrefix("Deployment: the API server responded late"), HaveSuffix("changed")))))
	},
		Entry("as a conflict", apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, "echo-hello", errors.New("changed"))),
		Entry("as invalid", &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "changed"}}),
	)

	const drift = "spec.template.spec.containers[echo].image"

	DescribeTable("waits before it repeats a correction, and reports that", func(corrections int, driftsNow bool, failure, waiting OmegaMatcher) {
		if driftsNow {
			live := deploymentOf(echo)
			Eventually(komega.Update(live, func() {
				live.Spec.Template.Spec.Containers[0].Image = "docker.io/library/other:1"
			})).Should(Succeed())
		}
		reconciler := &EchoReconciler{Client: admin, APIReader: admin, ServerImage: serverImage}
		corrected := reconciler.newReconciliation(echo).child(kind)
		for range corrections {
			corrected.memory.recordSuccess(kind, drift)
		}
		Expect(corrected.reconcile(ctx)).To(Succeed())
		Expect(corrected.failure).To(failure)
		Expect(corrected.waiting).To(waiting)
	},
		Entry("of drift", correctionBurst+1, true, BeNil(), And(HavePrefix("Deployment: the operator pauses"), HaveSuffix(drift))),
		Entry("of drift that was corrected", correctionBurst+1, false, BeNil(), BeEmpty()),
		Entry("of repeated drift", correctionBurst+3, true, HaveField("Message", HaveSuffix("repeatedly changes "+drift)), HaveSuffix(drift)),
		Entry("of repeated drift that was corrected", correctionBurst+3, false, HaveField("Message", HaveSuffix("repeatedly changes "+drift)), BeEmpty()),
	)

	It("remembers recent corrections, and no drift that waits for one", func() {
		corrected := (&EchoReconciler{}).newReconciliation(echo).child(kind)
		corrected.memory.entry(kind).corrections["long ago"] = backoff.Pause{}
		corrected.memory.recordSuccess(kind, drift)
		corrected.mustWait("other drift")
		Expect(corrected.memory.children[kind.Name].corrections).To(And(HaveLen(1), HaveKey(drift)))
	})

	DescribeTable("that does not write keeps the accepted changes of a child", func(observedGeneration int64, matcher OmegaMatcher) {
		echo.Status.Overridden = []echov1.OverriddenChild{{Kind: kind.Name, Hash: "accepted"}}
		echo.Status.ObservedGeneration = observedGeneration
		observed := (&EchoReconciler{Client: admin}).newReconciliation(echo).child(kind)
		observed.readOnly = true
		Expect(observed.reconcile(ctx)).To(Succeed())
		Expect(observed.overridden).To(matcher)
	},
		Entry("of the same generation", int64(1), HaveField("Hash", "accepted")),
		Entry("but not those of an earlier one", int64(0), BeNil()),
	)

	It("of a stale Echo does not write the status", func() {
		stale := echo.DeepCopy()
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		reconciler := &EchoReconciler{Client: admin, Recorder: events.NewFakeRecorder(10)}
		err := reconciler.newReconciliation(stale).writeStatus(ctx, echov1.EchoStatus{Ready: "9/9"})
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "error = %v, want a conflict", err)
	})

	// mutate has admission change the Deployment that a patch returns.
	mutate := func(change func(*corev1.Container)) {
		functions.Patch = func(c context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			err := w.Patch(c, object, patch, options...)
			if deployment, ok := object.(*appsv1.Deployment); ok {
				change(&deployment.Spec.Template.Spec.Containers[0])
			}
			return err
		}
	}

	It("reports a field that determines the response, which admission changed", func() {
		mutate(func(c *corev1.Container) { c.Args = []string{"-text=other"} })
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		Eventually(func(g Gomega) { // A controller may have written the Deployment in the meantime.
			_, retried, err := reconcileOnce()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(retried).To(BeTrue())
			g.Expect(komega.Object(echo)()).To(HaveField("Status.Conditions", ContainElement(SatisfyAll(
				HaveField("Type", echov1.ConditionReady), HaveField("Reason", echov1.ReasonRejected)))))
		}).Should(Succeed())
		Expect(komega.Get(echo)()).To(Succeed())
		Expect(message(echo, echov1.ConditionDegraded)).To(HavePrefix(
			"Deployment: an admission policy or webhook changed spec.template.spec.containers[echo].args"))
	})

	It("accepts another field that admission changed, and records it", func() {
		mutate(func(c *corev1.Container) { c.Image = "docker.io/library/mirror:1" })
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		Eventually(func(g Gomega) { // A controller may have written the Deployment in the meantime.
			_, _, err := reconcileOnce()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(komega.Object(echo)()).To(HaveField("Status.Overridden", ConsistOf(SatisfyAll(
				HaveField("Kind", "Deployment"), HaveField("Fields", ConsistOf("spec.template.spec.containers[echo].image"))))))
		}).Should(Succeed())
		Expect(komega.Get(echo)()).To(Succeed())
		Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionOverridden)).To(BeTrue())
		Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionDegraded)).To(BeFalse())
	})

	It("does not wait for an event of a write that admission reverts", func() {
		config := rest.CopyConfig(operator)
		config.UserAgent = directUserAgent
		withWatch, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		reverting := interceptor.NewClient(withWatch, interceptor.Funcs{Patch: failedPatch(nil)})
		reconciler := &EchoReconciler{Client: reverting, APIReader: withWatch, ServerImage: serverImage}
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		mutated := reconciler.newReconciliation(echo).child(kind)
		Expect(mutated.reconcile(ctx)).To(Succeed())
		Expect(mutated.failure).To(HaveValue(HaveField("Message", ContainSubstring("changed spec.template.spec.containers[echo].args"))))
		deployment := deploymentOf(echo)
		Expect(komega.Get(deployment)()).To(Succeed())
		Expect(reconciler.versions.IsStale(kind.ObjectKind, client.ObjectKeyFromObject(deployment), deployment)).To(BeFalse())
	})

	It("deletes a budget only in the version that it read", func() {
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 1 })
		functions.Get = func(c context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			err := w.Get(c, key, object)
			if budget, ok := object.(*policyv1.PodDisruptionBudget); ok && err == nil {
				budget.ResourceVersion = "1"
			}
			return err
		}
		_, retried, err := reconcileOnce()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeTrue())
		Expect(komega.Get(budgetOf(echo))()).To(Succeed())
	})

	It("continues with its child after the response to the creation was dropped", func() {
		functions.Get = func(c context.Context, w client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			if _, ok := object.(*corev1.Service); ok {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, key.Name)
			}
			return w.Get(c, key, object)
		}
		_, retried, err := reconcileOnce()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeFalse())
	})

	It("waits for a child that is being deleted", func() {
		service := serviceOf(echo)
		Eventually(komega.Update(service, func() { service.Finalizers = []string{"kkloud.io/test"} })).Should(Succeed())
		Expect(admin.Delete(ctx, service)).To(Succeed())
		_, _, err := reconcileOnce()
		Expect(err).NotTo(HaveOccurred())
		Expect(komega.Object(echo)()).To(HaveField("Status.Conditions", ContainElement(SatisfyAll(
			HaveField("Type", echov1.ConditionAvailable), HaveField("Reason", echov1.ReasonNotServing)))))
		Eventually(komega.Update(service, func() { service.Finalizers = nil })).Should(Succeed())
	})

	DescribeTable("returns an error if the API server is unavailable, so that the queue retries it",
		func(failing interceptor.Funcs) {
			functions = failing
			edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
			before := echo.Status.DeepCopy()
			Eventually(func() error { // A controller may have written the Deployment in the meantime.
				_, _, err := reconcileOnce()
				return err
			}).Should(MatchError(ContainSubstring(errUnavailable.Error())))
			Expect(komega.Object(echo)()).To(HaveField("Status", Equal(*before)))
		},
		Entry("for reads", interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errUnavailable
		}}),
		Entry("for the list of pods", interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errUnavailable
		}}),
		Entry("for writes", interceptor.Funcs{Patch: failedPatch(errUnavailable)}),
		Entry("for the write of the status", interceptor.Funcs{SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return errUnavailable
		}}),
	)

	It("in a terminating namespace is not retried", func() {
		terminating := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("being terminated"))
		terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		functions.Patch = failedPatch(terminating)
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		_, retried, err := reconcileOnce()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeFalse())
	})

	It("truncates a long error, which may contain user content, for the log", func() {
		functions.Patch = failedPatch(&apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusServiceUnavailable, Message: strings.Repeat("wrote\n", 1000)}})
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		_, _, err := reconcileOnce()
		Expect(err).To(MatchError(HavePrefix("reconcile Deployment: wrote wrote ")))
		Expect([]rune(err.Error())).To(HaveLen(maxNote))
	})

	It("truncates a long terminal error for events", func() {
		long := apierrors.NewForbidden(schema.GroupResource{}, "echo-hello", nil)
		long.ErrStatus.Message = string(make([]rune, 5000))
		functions.Patch = failedPatch(long)
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "newer" })
		recorder, retried, err := reconcileOnce()
		Expect(err).NotTo(HaveOccurred())
		Expect(retried).To(BeTrue())
		Expect(len([]rune(<-recorder.Events))).To(BeNumerically("<=", maxNote+50))
	})
})

// failedPatch returns a function that fails every patch.
func failedPatch(err error) func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
	return func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return err
	}
}

var errUnavailable = &apierrors.StatusError{ErrStatus: metav1.Status{
	Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "unavailable",
}}

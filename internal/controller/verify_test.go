package controller

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

func verifierMeta(echo *echov1.Echo) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: echo.Namespace, Name: children.VerifierName(echo)}
}

func verifierOf(echo *echov1.Echo) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: verifierMeta(echo)}
}

func verifierSetOf(echo *echov1.Echo) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: verifierMeta(echo)}
}

// expectVerified waits until the Echo reports the conditions Verified, Ready and Degraded for its newest spec.
func expectVerified(echo *echov1.Echo, verified, ready, degraded string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
		g.Expect(echo.Status.ObservedGeneration).To(Equal(echo.Generation))
		g.Expect([]string{summary(echo, echov1.ConditionVerified), summary(echo, echov1.ConditionReady), summary(echo, echov1.ConditionDegraded)}).
			To(Equal([]string{verified, ready, degraded}), "Verified, Ready and Degraded")
	}, "60s").Should(Succeed())
}

const (
	isVerified  = "True Verified"
	notVerified = "False VerificationFailed"
	notRunning  = "VerifierNotRunning"
)

// setResult reports a layer of the Echo's verifiers on a node as verified or not, as its kubelet does.
func setResult(echo *echov1.Echo, node, layer string, verified bool) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var pods corev1.PodList
		g.Expect(admin.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingLabels(children.VerifierSelector(echo)))).To(Succeed())
		reported := false
		for i := range pods.Items {
			pod := &pods.Items[i]
			before := pod.DeepCopy()
			for j := range pod.Status.ContainerStatuses {
				if container := &pod.Status.ContainerStatuses[j]; container.Name == layer && pod.Spec.NodeName == node && pod.DeletionTimestamp == nil {
					container.Ready, reported = verified, true
				}
			}
			for j := range pod.Status.Conditions {
				if condition := &pod.Status.Conditions[j]; condition.Type == corev1.PodReady && pod.Spec.NodeName == node {
					condition.Status = map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[verified]
				}
			}
			g.Expect(admin.Status().Patch(ctx, pod, client.MergeFrom(before))).To(Succeed())
		}
		g.Expect(reported).To(BeTrue(), "no verifier of the Echo %s runs on the node %s", echo.Name, node)
	}).Should(Succeed())
}

func allowEveryNode(allowed bool) func(*EchoReconciler) {
	return func(r *EchoReconciler) { r.AllowEveryNodeVerification = allowed }
}

var _ = Describe("The verification of an Echo", func() {
	var namespace string

	BeforeEach(func() { namespace = newNamespace() })

	It("runs one verifier after the rollout, and the Echo is Ready when its response is verified", func() {
		startOperator()
		since := auditMark()
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		verifier := verifierOf(echo)
		Expect(komega.Get(verifier)()).To(Succeed())
		service := serviceOf(echo)
		Expect(komega.Get(service)()).To(Succeed())
		pod := verifier.Spec.Template
		Expect(pod.Labels).To(And(HaveKeyWithValue(children.VerifiesLabel, "hello"), Not(HaveKey(children.EchoLabel))))
		Expect(pod.Spec.Containers).To(HaveExactElements(HaveField("Name", "dns"), HaveField("Name", "service")))
		Expect(pod.Spec.Containers[1].Image).To(Equal(verifierImage))
		Expect(pod.Spec.Containers[1].Args).To(ContainElements("-cluster-ips="+service.Spec.ClusterIP, "-period=1s", "-timeout=1s", "-failure-threshold=1"))
		Expect(verifier.OwnerReferences).To(HaveExactElements(HaveField("UID", echo.UID)))
		Expect(eventsOf(echo)).NotTo(ContainElement(ContainSubstring("Verifying")))

		requests := requestsSince(since)
		Expect(requests).To(ContainElement("create deployments/ " + namespace + "/verify-hello"))
		Expect(requests).NotTo(ContainElement(Or(HavePrefix("get "), HavePrefix("patch "))), "requests include a live read or a second write")
		Expect(metricValue("echo_operator_drift_corrections_total", map[string]string{"kind": "VerifierDeployment"})).To(BeZero())

		By("editing the message")
		label := pod.Labels[children.ResponseLabel]
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "changed" })
		Eventually(func() string {
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
			Expect(summary(echo, echov1.ConditionVerified)).NotTo(HavePrefix("False"))
			Expect(komega.Get(verifier)()).To(Succeed())
			return verifier.Spec.Template.Labels[children.ResponseLabel]
		}).ShouldNot(Equal(label))
		expectVerified(echo, isVerified, isReady, notDegraded)

		By("removing the verification")
		edit(echo, func(s *echov1.EchoSpec) { s.Verify = nil })
		expectVerified(echo, "", isReady, notDegraded)
		Eventually(komega.Get(verifierOf(echo))).Should(MatchError(ContainSubstring("not found")))
	})

	It("names the layer and the node where the response is wrong", func() {
		startOperator()
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		setResult(echo, "node-a", "service", false)
		expectVerified(echo, notVerified, notVerified, "True VerificationFailed")
		Expect(message(echo, echov1.ConditionVerified)).To(HavePrefix("service fails on node node-a (the cause: kubectl logs -n "))
		Expect(message(echo, echov1.ConditionReady)).To(HavePrefix("service fails on node node-a (the cause: kubectl logs -n "))
		expectCondition(echo, echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing)
		Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Warning VerificationFailed"))

		since := auditMark()
		Consistently(func() []string { return requestsSince(since) }).Should(BeEmpty())

		setResult(echo, "node-a", "service", true)
		expectVerified(echo, isVerified, isReady, notDegraded)
	})

	It("writes the verifier only after the rollout of the newest spec", func() {
		startOperator()
		neverReady := func(s *echov1.EchoSpec) { s.Image, s.Message = controlplane.NeverReady, "newer" }
		starting := createEcho(namespace, "starting", verified, neverReady)
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		verifier := verifierOf(echo)
		Expect(komega.Get(verifier)()).To(Succeed())
		edit(echo, neverReady)
		for _, e := range []*echov1.Echo{starting, echo} {
			expectVerified(e, "Unknown RollingOut", "False RollingOut", notDegraded)
		}
		Consistently(komega.Object(verifierOf(echo))).Should(HaveField("Generation", verifier.Generation))
		Expect(komega.Get(verifierOf(starting))()).To(MatchError(ContainSubstring("not found")))
	})

	DescribeTable("is Unknown with the cluster's message while the verifier does not run",
		func(image, text string) {
			startChangedOperator(func(r *EchoReconciler) { r.VerifierImage = image }, client.ObjectKey{})
			echo := createEcho(namespace, "hello", verified)
			expectVerified(echo, "Unknown "+notRunning, "False "+notRunning, notDegraded)
			Expect(message(echo, echov1.ConditionVerified)).To(ContainSubstring(text))
			Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Warning " + notRunning))
		},
		Entry("because its image is missing", "registry.example/verifier:absent", "registry.example/verifier:absent: not found"),
		Entry("because no node has room", "registry.example/verifier:huge", "0/1 nodes are available: 1 Insufficient memory."),
	)

	It("runs in a namespace with a minimum of memory, with resources that the Echo declares", func() {
		minimum := map[corev1.ResourceName]resource.Quantity{corev1.ResourceMemory: resource.MustParse("64Mi")}
		Expect(admin.Create(ctx, &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "minimum"},
			Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Min: minimum}}},
		})).To(Succeed())
		startOperator()
		fits := echov1.Resources{Limits: minimum, Requests: minimum}
		echo := createEcho(namespace, "hello", verified, func(s *echov1.EchoSpec) { s.Resources, s.Verify.Resources = fits, fits })
		expectVerified(echo, isVerified, isReady, notDegraded)
	})

	It("does not make a Ready Echo unready when the verifier is evicted", func() {
		startOperator()
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		Expect(admin.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace), client.MatchingLabels(children.VerifierSelector(echo)))).To(Succeed())
		Consistently(func() string {
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(echo), echo)).To(Succeed())
			return summary(echo, echov1.ConditionReady)
		}).Should(Equal(isReady))
		expectVerified(echo, isVerified, isReady, notDegraded)
	})

	It("is Unknown, and the Echo is degraded and not Ready, while the API server rejects the verifier", func() {
		startOperator()
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		quota := exhaustQuota(namespace, "count/deployments.apps")
		Expect(admin.Delete(ctx, verifierOf(echo))).To(Succeed())
		expectVerified(echo, "Unknown Rejected", "False Rejected", "True Rejected")
		for _, condition := range []string{echov1.ConditionVerified, echov1.ConditionReady, echov1.ConditionDegraded} {
			Expect(message(echo, condition)).To(And(HavePrefix("VerifierDeployment: "), ContainSubstring("exceeded quota")))
		}
		Expect(admin.Delete(ctx, quota)).To(Succeed())
		expectVerified(echo, isVerified, isReady, notDegraded)
	})

	It("says nothing about the response when a container that others added is not ready", func() {
		const restartedAt = "kubectl.kubernetes.io/restartedAt"
		startOperator()
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		verifier := verifierOf(echo)
		Eventually(komega.Update(verifier, func() {
			pod := &verifier.Spec.Template.Spec
			mesh := corev1.Container{Name: "mesh", Image: "registry.example/mesh", SecurityContext: pod.Containers[0].SecurityContext}
			pod.Containers = append([]corev1.Container{mesh}, pod.Containers...)
			pod.Volumes = []corev1.Volume{{Name: "ca", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			pod.Containers[2].Env = []corev1.EnvVar{{Name: "SSL_CERT_FILE", Value: "/ca/ca.crt"}}
			pod.Containers[2].VolumeMounts = []corev1.VolumeMount{{Name: "ca", MountPath: "/ca"}}
			verifier.Spec.Template.Annotations = map[string]string{restartedAt: "today"} // As by kubectl rollout restart.
		})).Should(Succeed())
		setResult(echo, "node-a", "mesh", false)
		expectVerified(echo, "Unknown "+notRunning, isReady, notDegraded)
		Expect(message(echo, echov1.ConditionVerified)).To(HaveSuffix("not ready: mesh fails on node node-a"))

		setResult(echo, "node-a", "service", false)
		expectVerified(echo, notVerified, notVerified, "True VerificationFailed")
		Expect(message(echo, echov1.ConditionVerified)).To(HavePrefix("service fails on node node-a (the cause: kubectl logs -n "))

		setResult(echo, "node-a", "service", true)
		setResult(echo, "node-a", "mesh", true)
		expectVerified(echo, isVerified, isReady, notDegraded)

		By("editing the message")
		edit(echo, func(s *echov1.EchoSpec) { s.Message = "changed" })
		expectVerified(echo, isVerified, isReady, notDegraded)
		Expect(komega.Get(verifier)()).To(Succeed())
		Expect(verifier.Spec.Template.Annotations).To(HaveKeyWithValue(restartedAt, "today"))
		Expect(verifier.Spec.Template.Spec.Volumes).To(HaveLen(1))
		Expect(verifier.Spec.Template.Spec.Containers).To(HaveExactElements(HaveField("Name", "mesh"), HaveField("Name", "dns"),
			And(HaveField("Name", "service"), HaveField("Env", HaveLen(1)), HaveField("VolumeMounts", HaveLen(1)))))
	})

	It("is restored after an external change and after a deletion", func() {
		startOperator()
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		verifier := verifierOf(echo)
		Expect(komega.Get(verifier)()).To(Succeed())
		want := verifier.Spec.Template.Spec.Containers[1].Args
		Eventually(komega.Update(verifier, func() { verifier.Spec.Template.Spec.Containers[1].Args = []string{"-layer=dns"} })).Should(Succeed())
		Eventually(komega.Object(verifier)).Should(HaveField("Spec.Template.Spec.Containers", ContainElement(HaveField("Args", want))))
		expectVerified(echo, isVerified, isReady, notDegraded)

		deleted := verifier.UID
		Expect(admin.Delete(ctx, verifier)).To(Succeed())
		Eventually(komega.Object(verifier)).Should(HaveField("UID", Not(Equal(deleted))))
		expectVerified(echo, isVerified, isReady, notDegraded)
		Eventually(metricFunc("echo_operator_drift_corrections_total", map[string]string{"kind": "VerifierDeployment"})).Should(Equal(2.0))
	})

	It("runs on every node only while an administrator allows it", func() {
		stop := startChangedOperator(allowEveryNode(false), client.ObjectKey{})
		echo := createEcho(namespace, "hello", fromEveryNode)
		expectVerified(echo, "Unknown EveryNodeNotAllowed", "False EveryNodeNotAllowed", notDegraded)
		Expect(komega.Get(verifierSetOf(echo))()).To(MatchError(ContainSubstring("not found")))
		stop()

		By("allowing it")
		stop = startChangedOperator(allowEveryNode(true), client.ObjectKey{})
		expectVerified(echo, isVerified, isReady, notDegraded)
		Expect(komega.Object(verifierSetOf(echo))()).To(HaveField("Status.NumberReady", BeEquivalentTo(len(controlplane.Nodes))))
		time.Sleep(time.Duration(children.DecisionSeconds(echo.Spec.Verify, false)) * time.Second)
		setResult(echo, "node-b", "dns", false)
		expectVerified(echo, notVerified, notVerified, "True VerificationFailed")
		Expect(message(echo, echov1.ConditionVerified)).To(HavePrefix("dns fails on 1 of 2 nodes: node-b (the cause: "))
		setResult(echo, "node-b", "dns", true)
		expectVerified(echo, isVerified, isReady, notDegraded)
		stop()

		By("disallowing it")
		startChangedOperator(allowEveryNode(false), client.ObjectKey{})
		expectVerified(echo, "Unknown EveryNodeNotAllowed", isReady, notDegraded)
		Eventually(komega.Get(verifierSetOf(echo))).Should(MatchError(ContainSubstring("not found")))
	})

	It("changes between one verifier and one on every node", func() {
		startOperator()
		echo := createEcho(namespace, "hello", verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		edit(echo, fromEveryNode)
		expectVerified(echo, isVerified, isReady, notDegraded)
		Expect(komega.Get(verifierOf(echo))()).To(MatchError(ContainSubstring("not found")))
		edit(echo, verified)
		expectVerified(echo, isVerified, isReady, notDegraded)
		Expect(komega.Get(verifierSetOf(echo))()).To(MatchError(ContainSubstring("not found")))
	})
})

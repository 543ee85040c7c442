package controller

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/backoff"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

var _ = Describe("The status in the course of time", func() {
	var namespace string

	BeforeEach(func() {
		namespace = newNamespace()
		startOperator()
	})

	It("of a newer generation does not report a failure of a pod of the earlier one", func() {
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Image = "docker.io/library/server:absent" })
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonImagePullFailed)
		// The failing pod remains, because the new one does not become ready.
		edit(echo, func(s *echov1.EchoSpec) { s.Image = controlplane.NeverReady })
		Eventually(func() int { return len(livePods(echo)) }).Should(Equal(2))
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonRollingOut)
		Consistently(readyReason(echo)).Should(Equal("False RollingOut"))
		Expect(eventsOf(echo)).To(ConsistOf("Warning ImagePullFailed"))

		By("making the pod of the newest spec fail, too")
		changeStatus(podOf(echo, func(pod *corev1.Pod) bool { return pod.Spec.Containers[0].Image == controlplane.NeverReady }), func(s *corev1.PodStatus) {
			s.ContainerStatuses[0].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerError", Message: "no such device"}}
		})
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonContainerCreateFailed)
		Expect(message(echo, echov1.ConditionReady)).To(HaveSuffix("no such device"))
	})

	It("of a scale-up is RollingOut until every pod was available, and then PodsNotReady after a loss", func() {
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Image = controlplane.NeverReady })
		becomeReady(echo, 1)
		expectReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 3 })
		Eventually(func() int { return len(livePods(echo)) }).Should(Equal(3))
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut)
		Consistently(readyReason(echo)).Should(Equal("False RollingOut"))
		Expect(message(echo, echov1.ConditionReady)).To(Equal("3 of 3 pods run the newest spec, 1 are available"))
		Expect(meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionAvailable)).To(BeTrue())

		becomeReady(echo, 3)
		expectReady(echo)
		Expect(eventsOf(echo)).NotTo(ContainElement("Normal PodsNotReady"))
		since := auditMark()
		setReady(podOf(echo, isReadyPod), false)
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonPodsNotReady)
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonRolledOut)
		Eventually(func() []string { return eventsOf(echo) }).Should(ContainElement("Normal PodsNotReady"))
		Expect(requestsSince(since)).NotTo(ContainElement(HavePrefix("list ")), "no pod fails, but the operator lists ReplicaSets")
	})

	It("of pods that change their readiness again and again is written at increasing intervals", func() {
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Image, s.TargetPort, s.Replicas = controlplane.NeverReady, 5678, 5 })
		becomeReady(echo, 2)
		Eventually(komega.Object(echo)).Should(HaveField("Status.Ready", "2/5"))
		edit(echo, func(s *echov1.EchoSpec) { s.Port = 81 }) // A new generation has no earlier writes.
		Eventually(func() int64 {
			Expect(komega.Get(echo)()).To(Succeed())
			return echo.Status.ObservedGeneration
		}).Should(Equal(echo.Generation))
		since, start := auditMark(), time.Now()
		pod := podOf(echo, isReadyPod)
		for i := range 20 {
			setReady(pod, i%2 == 1)
			time.Sleep(400 * time.Millisecond)
		}
		becomeReady(echo, 4)
		Eventually(komega.Object(echo)).Should(HaveField("Status.Ready", "4/5"))
		writes := 0
		for _, event := range auditEventsSince(since) {
			if event.Verb == "update" && event.ObjectRef.Resource == "echoes" {
				writes++
			}
		}
		paused := 0 // So many writes were possible after pauses.
		for pause, at := backoff.Min, backoff.Min; at < time.Since(start); at += pause {
			paused++
			pause *= 2
		}
		Expect(writes).To(BeNumerically("<=", statusBurst+max(3, paused)))
		becomeReady(echo, 5)
		Eventually(komega.Object(deploymentOf(echo))).Should(HaveField("Status.AvailableReplicas", BeEquivalentTo(5)))
		Eventually(readyReason(echo)).WithTimeout(5*time.Second).Should(Equal("True Ready"), "the pause of the progress delays the success")
	})

	DescribeTable("of repeated drift names the writer", func(manager, hint string) {
		echo := createEcho(namespace, "hello")
		expectCondition(echo, echov1.ConditionDegraded, metav1.ConditionFalse, echov1.ReasonAsExpected)
		Eventually(func(g Gomega) {
			g.Expect(komega.Get(echo)()).To(Succeed())
			drift := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"echo","image":"docker.io/library/other:1"}]}}}}`)
			g.Expect(admin.Patch(ctx, deploymentOf(echo), client.RawPatch(types.StrategicMergePatchType, drift), client.FieldOwner(manager))).To(Succeed())
			g.Expect(message(echo, echov1.ConditionDegraded)).To(ContainSubstring(
				"(field manager " + manager + ") repeatedly changes spec.template.spec.containers[echo].image" + hint))
		}).WithTimeout(time.Minute).WithPolling(100 * time.Millisecond).Should(Succeed())
	},
		Entry("of another kind", "other-tool", ""),
		Entry("of the same name", "echo-operator", ": another operator"),
	)

	It("of a scale-up that does not complete is ProgressDeadlineExceeded after two minutes", func() {
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Image = controlplane.NeverReady })
		becomeReady(echo, 1)
		expectReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 2 })
		Eventually(func() int { return len(livePods(echo)) }).Should(Equal(2))
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut)

		By("moving the last rollout, the ready pod and the start of the scale-up into the past")
		past := metav1.NewTime(time.Now().Add(-100 * time.Second))
		deployment := deploymentOf(echo)
		// Afterwards, the Deployment controller observes no progress.
		Eventually(komega.Object(deployment)).Should(HaveField("Status.UpdatedReplicas", BeEquivalentTo(2)))
		Eventually(komega.UpdateStatus(deployment, func() {
			for i := range deployment.Status.Conditions {
				deployment.Status.Conditions[i].LastUpdateTime = past
			}
		})).Should(Succeed())
		changeStatus(podOf(echo, isReadyPod), func(s *corev1.PodStatus) {
			for i := range s.Conditions {
				s.Conditions[i].LastTransitionTime = past
			}
		})
		Eventually(komega.UpdateStatus(echo, func() {
			meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing).LastTransitionTime = past
		})).Should(Succeed())
		Expect(readyReason(echo)()).To(Equal("False RollingOut"))
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded)
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded)
		Consistently(readyReason(echo)).Should(Equal("False ProgressDeadlineExceeded"))
		becomeReady(echo, 2)
		expectReady(echo)
	})

	It("of a second scale-up has its own two minutes", func() {
		echo := createEcho(namespace, "hello", func(s *echov1.EchoSpec) { s.Image = controlplane.NeverReady })
		becomeReady(echo, 1)
		expectReady(echo)
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 2 })
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut)
		past := metav1.NewTime(time.Now().Add(-100 * time.Second))
		progressing := func() *metav1.Condition {
			return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing)
		}
		Eventually(komega.UpdateStatus(echo, func() { progressing().LastTransitionTime = past })).Should(Succeed())
		edit(echo, func(s *echov1.EchoSpec) { s.Replicas = 3 })
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut)
		Expect(progressing().LastTransitionTime.Time).To(BeTemporally(">", past.Add(90*time.Second)))
	})

	It("reports a crash loop for ten minutes after the last crash, with the reason of the kubelet", func() {
		echo := createEcho(namespace, "hello", twoPods)
		expectReady(echo)
		crashed := func(ago time.Duration) func(*corev1.PodStatus) {
			at := metav1.NewTime(time.Now().Add(-ago))
			return func(s *corev1.PodStatus) {
				s.ContainerStatuses[0].Ready, s.ContainerStatuses[0].RestartCount = false, 2
				s.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
				s.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
					ExitCode: 137, Reason: "OOMKilled", Message: "too big\n", FinishedAt: at,
				}
			}
		}
		By("reporting a pod as not ready that was killed a month ago")
		pod := podOf(echo, isReadyPod)
		changeStatus(pod, crashed(30*24*time.Hour))
		setReady(pod, false)
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonPodsNotReady)
		Consistently(readyReason(echo)).Should(Equal("False PodsNotReady"))

		By("reporting that it was killed nearly ten minutes ago")
		changeStatus(pod, crashed(10*time.Minute-15*time.Second))
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonCrashLooping)
		Expect(message(echo, echov1.ConditionReady)).To(Equal("Pod " + pod.Name + ", container echo: exited with code 137 (OOMKilled): too big"))
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonPodsNotReady)

		By("evicting it while it is in a crash loop")
		changeStatus(pod, crashed(0))
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonCrashLooping)
		changeStatus(pod, func(s *corev1.PodStatus) { s.Phase, s.Reason = corev1.PodFailed, "Evicted" })
		expectReady(echo) // The ReplicaSet replaces it.
		Expect(komega.Get(pod)()).To(Succeed(), "the evicted pod has been deleted")
	})

	It("of an Echo that is being deleted counts the pods of a Deployment that is too large for the cache", func() {
		echo := newEcho(namespace, "hello")
		echo.Finalizers = []string{"example.com/hold"}
		Expect(admin.Create(ctx, echo)).To(Succeed())
		expectReady(echo)
		deployment := deploymentOf(echo)
		Eventually(komega.Update(deployment, func() { metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, "large", strings.Repeat("x", 200<<10)) })).Should(Succeed())
		Expect(admin.Delete(ctx, echo)).To(Succeed())
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonTerminating)
		Consistently(komega.Object(echo), "2s").Should(HaveField("Status.Ready", "1/1"))
		expectCondition(echo, echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing)
		Eventually(komega.Update(echo, func() { echo.Finalizers = nil })).Should(Succeed())
	})

	It("of an Echo whose deletion waits for a child is Terminating", func() {
		echo := createEcho(namespace, "hello")
		expectReady(echo)
		deployment := deploymentOf(echo)
		Eventually(komega.Update(deployment, func() { deployment.Finalizers = []string{"example.com/hold"} })).Should(Succeed())
		Expect(admin.Delete(ctx, echo, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(komega.Get(serviceOf(echo))).Should(MatchError(ContainSubstring("not found")))
		expectCondition(echo, echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonTerminating)
		expectCondition(echo, echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonTerminating)
		expectCondition(echo, echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing)
		expectCondition(echo, echov1.ConditionDegraded, metav1.ConditionFalse, echov1.ReasonAsExpected)
		expectCondition(echo, echov1.ConditionOverridden, metav1.ConditionFalse, echov1.ReasonAsExpected)
		Eventually(komega.Object(echo)).Should(HaveField("Status.Replicas", BeZero()))
		Eventually(func() string {
			Expect(komega.Get(echo)()).To(Succeed())
			return message(echo, echov1.ConditionAvailable)
		}).Should(Equal("The Echo has no Service"))
		// The last of them may follow as long as the Deployment's own status does.
		Eventually(func(g Gomega) {
			since := auditMark()
			g.Consistently(func() []string { return requestsSince(since) }, "2s").Should(BeEmpty())
		}).Should(Succeed())
		Eventually(komega.Update(deployment, func() { deployment.Finalizers = nil })).Should(Succeed())
		Eventually(komega.Get(echo)).Should(MatchError(ContainSubstring("not found")))
	})
})

// readyReason returns a function that returns the status and the reason of Ready.
func readyReason(echo *echov1.Echo) func() string {
	return func() string {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(echo), echo); err != nil {
			return err.Error()
		}
		ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
		return string(ready.Status) + " " + ready.Reason
	}
}

// livePods returns the pods of the Echo that are not being deleted.
func livePods(echo *echov1.Echo) []*corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(admin.List(ctx, &list, client.InNamespace(echo.Namespace), client.MatchingLabels(children.Selector(echo)))).To(Succeed())
	var pods []*corev1.Pod
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods
}

// podOf waits for a pod of the Echo that the kubelet has reported, and returns it.
func podOf(echo *echov1.Echo, is func(*corev1.Pod) bool) (found *corev1.Pod) {
	GinkgoHelper()
	Eventually(func() bool {
		for _, pod := range livePods(echo) {
			if len(pod.Status.ContainerStatuses) > 0 && is(pod) {
				found = pod
				return true
			}
		}
		return false
	}).Should(BeTrue(), "Echo %s has no such pod", echo.Name)
	return found
}

func isReadyPod(pod *corev1.Pod) bool   { return pod.Status.ContainerStatuses[0].Ready }
func isUnreadyPod(pod *corev1.Pod) bool { return !isReadyPod(pod) }

// becomeReady waits for this number of pods of the Echo, and reports each as ready.
func becomeReady(echo *echov1.Echo, count int) {
	GinkgoHelper()
	ready := 0
	for _, pod := range livePods(echo) {
		if len(pod.Status.ContainerStatuses) > 0 && isReadyPod(pod) {
			ready++
		}
	}
	for ; ready < count; ready++ {
		setReady(podOf(echo, isUnreadyPod), true)
	}
}

// setReady reports whether the pod is ready, as the kubelet does.
func setReady(pod *corev1.Pod, ready bool) {
	GinkgoHelper()
	changeStatus(pod, func(s *corev1.PodStatus) {
		s.Phase, s.ContainerStatuses[0].Ready = corev1.PodRunning, ready
		for i := range s.Conditions {
			if c := &s.Conditions[i]; c.Type == corev1.PodReady {
				c.Status = map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
			}
		}
	})
}

func changeStatus(pod *corev1.Pod, change func(*corev1.PodStatus)) {
	GinkgoHelper()
	Eventually(komega.UpdateStatus(pod, func() { change(&pod.Status) })).Should(Succeed())
}

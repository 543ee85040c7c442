package controller

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// neverReady is the image of a server that starts and does not become ready.
const neverReady = "docker.io/library/slow:1"

// startKubelet stands in for the only part of a cluster that is not here, the nodes: it
// reports every pod of an Echo as running and ready, unless its image says how it fails.
// The end-to-end tests have real ones.
func startKubelet() {
	stop, stopped := make(chan struct{}), make(chan struct{})
	DeferCleanup(func() {
		close(stop)
		<-stopped
	})
	go func() {
		defer GinkgoRecover()
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var pods corev1.PodList
			if err := admin.List(ctx, &pods, client.HasLabels{children.EchoLabel}); err != nil {
				continue // The next round sees them.
			}
			for i := range pods.Items {
				report(&pods.Items[i])
			}
		}
	}()
}

func report(pod *corev1.Pod) {
	before := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	ready := corev1.ConditionTrue
	container := corev1.ContainerStatus{Name: "echo", Image: pod.Spec.Containers[0].Image, ImageID: "x"}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	switch image := pod.Spec.Containers[0].Image; {
	case strings.HasSuffix(image, ":absent"):
		container.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: `Back-off pulling image "` + image + `": ErrImagePull: ` + image + ": not found"}
	case strings.HasSuffix(image, ":crash"):
		container.RestartCount = 3
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container"}
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 127, Message: "out of\ntune\n"}
	case strings.HasSuffix(image, ":huge"):
		scheduled = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient memory."}
	case image == neverReady:
		container.State.Running = &corev1.ContainerStateRunning{}
	default:
		container.Ready = true
		container.State.Running = &corev1.ContainerStateRunning{}
	}
	if !container.Ready {
		pod.Status.Phase, ready = corev1.PodPending, corev1.ConditionFalse
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{container}
	pod.Status.Conditions = []corev1.PodCondition{
		scheduled,
		{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(pod.CreationTimestamp.Time)},
	}
	_ = admin.Status().Patch(ctx, pod, client.MergeFrom(before)) // It may be gone; the next round sees the rest.
}

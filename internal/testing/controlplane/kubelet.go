package controlplane

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The name of its image decides how a pod fails. A pod with any other image becomes ready.
const (
	// NeverReady is the image of a server that starts but does not become ready.
	NeverReady = "docker.io/library/slow:1"

	// RootImage is the image of a server whose user is root, unless the pod sets another one.
	RootImage = "docker.io/library/root:1"

	absent = ":absent"
	crash  = ":crash"
	huge   = ":huge"
)

// StartKubelet reports every pod as running and ready, or as failing in the way that
// its image asks for, until the context is done.
func StartKubelet(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) error {
	writer, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	pods, err := cache.New(config, cache.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	informer, err := pods.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			// Pods are reported concurrently, as by several nodes. A pod that was reported
			// before a restart keeps its status.
			if pod := object.(*corev1.Pod); len(pod.Status.ContainerStatuses) == 0 {
				go report(ctx, writer, pod)
			}
		},
	}); err != nil {
		return err
	}
	go func() { _ = pods.Start(ctx) }() // It returns when the context is done.
	if !pods.WaitForCacheSync(ctx) {
		return fmt.Errorf("watch pods: %w", ctx.Err())
	}
	return nil
}

// report writes the status of a new pod once. It ignores that the pod was deleted before.
func report(ctx context.Context, writer client.Client, pod *corev1.Pod) {
	reported := pod.DeepCopy()
	reported.Status = statusOf(pod)
	_ = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := writer.Status().Patch(ctx, reported.DeepCopy(), client.MergeFrom(pod))
		return client.IgnoreNotFound(err) == nil, nil
	})
}

func statusOf(pod *corev1.Pod) corev1.PodStatus {
	image := pod.Spec.Containers[0].Image
	container := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: image, ImageID: "x"}
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	switch {
	case strings.HasSuffix(image, absent):
		container.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: `Back-off pulling image "` + image + `": ErrImagePull: ` + image + ": not found"}
	case strings.HasSuffix(image, crash):
		container.RestartCount = 3
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container"}
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 127, Message: "out of\ntune\n"}
	case strings.HasSuffix(image, huge):
		scheduled = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes are available: 1 Insufficient memory."}
	case image == RootImage && (pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.RunAsUser == nil):
		container.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "CreateContainerConfigError", Message: "container has runAsNonRoot and image will run as root"}
	case image == NeverReady:
		container.State = running
	default:
		container.Ready, container.State = true, running
	}
	phase, ready := corev1.PodRunning, corev1.ConditionTrue
	if !container.Ready {
		phase, ready = corev1.PodPending, corev1.ConditionFalse
	}
	return corev1.PodStatus{
		Phase:             phase,
		ContainerStatuses: []corev1.ContainerStatus{container},
		Conditions: []corev1.PodCondition{
			scheduled,
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(pod.CreationTimestamp.Time)},
		},
	}
}

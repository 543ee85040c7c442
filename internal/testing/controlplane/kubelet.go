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

	"github.com/kkloud-io/echo-operator/internal/children"
)

// The name of the image of its first container decides how a pod fails. A pod with any other image becomes ready.
const (
	// NeverReady is the image of a server that starts but does not become ready.
	NeverReady = "docker.io/library/slow:1"

	// RootImage is the image of a server whose user is root, unless the pod sets another one.
	RootImage = "docker.io/library/root:1"

	absent = ":absent"
	crash  = ":crash"
	huge   = ":huge"
)

// Nodes are the names of the nodes. Only the pods of verifiers are bound to them.
var Nodes = []string{"node-a", "node-b"}

// addNodes creates the nodes, for DaemonSets. Admission taints a new node until a kubelet reports it.
func addNodes(ctx context.Context, admin client.Client) error {
	for _, name := range Nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			"example.com/pool": "canary", // A node selector of the tests.
		}}}
		if err := admin.Create(ctx, node); err != nil {
			return err
		}
		node.Spec.Taints = nil
		if err := admin.Update(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

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
		UpdateFunc: func(_, object any) {
			pod := object.(*corev1.Pod)
			if pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" {
				go stop(ctx, writer, pod)
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

// StopsAfter is the annotation of a pod that takes a time to stop, such as 12s. The API server deletes the others at once,
// because they are bound to no node.
const StopsAfter = "example.com/stops-after"

// stop deletes a pod that stops. The API server waits for that if the pod is bound to a node.
func stop(ctx context.Context, writer client.Client, pod *corev1.Pod) {
	delay, _ := time.ParseDuration(pod.Annotations[StopsAfter])
	time.Sleep(delay)
	_ = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := writer.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		return client.IgnoreNotFound(err) == nil, nil
	})
}

// bind binds a pod of a verifier, or one that takes a time to stop, to its node, as the scheduler does.
func bind(ctx context.Context, writer client.Client, pod *corev1.Pod) error {
	isBound := pod.Labels[children.VerifiesLabel] != "" || pod.Annotations[StopsAfter] != ""
	if !isBound || pod.Spec.NodeName != "" {
		return nil
	}
	node := Nodes[0]
	if affinity := pod.Spec.Affinity; metav1.GetControllerOf(pod) != nil && metav1.GetControllerOf(pod).Kind == "DaemonSet" {
		for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, field := range term.MatchFields {
				node = field.Values[0]
			}
		}
	}
	return writer.SubResource("binding").Create(ctx, pod.DeepCopy(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	})
}

// report writes the status of a new pod once. It retries until the pod is deleted, as a kubelet does.
func report(ctx context.Context, writer client.Client, pod *corev1.Pod) {
	if scheduled := schedulingOf(pod); scheduled.Status == corev1.ConditionTrue {
		_ = bind(ctx, writer, pod) // A pod that was deleted, or that is bound already.
	}
	reported := pod.DeepCopy()
	reported.Status = statusOf(pod)
	_ = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := writer.Status().Patch(ctx, reported.DeepCopy(), client.MergeFrom(pod))
		return client.IgnoreNotFound(err) == nil, nil
	})
}

// schedulingOf returns what the scheduler reports about the pod.
func schedulingOf(pod *corev1.Pod) corev1.PodCondition {
	if strings.HasSuffix(pod.Spec.Containers[0].Image, huge) {
		return corev1.PodCondition{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
			Message: "0/1 nodes are available: 1 Insufficient memory.",
		}
	}
	return corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}
}

func statusOf(pod *corev1.Pod) corev1.PodStatus {
	image := pod.Spec.Containers[0].Image
	container := corev1.ContainerStatus{Image: image, ImageID: "x"}
	scheduled := schedulingOf(pod)
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	if pod.Labels[children.VerifiesLabel] != "" {
		running.Running.StartedAt = metav1.Now()
	}
	switch {
	case strings.HasSuffix(image, absent):
		container.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "ImagePullBackOff", Message: `Back-off pulling image "` + image + `": ErrImagePull: ` + image + ": not found"}
	case strings.HasSuffix(image, crash):
		container.RestartCount = 3
		container.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 40s restarting failed container"}
		container.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 127, Message: "out of\ntune\n"}
	case scheduled.Status != corev1.ConditionTrue:
	case image == RootImage && (pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.RunAsUser == nil):
		container.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "CreateContainerConfigError", Message: "container has runAsNonRoot and image will run as root"}
	case image == NeverReady:
		container.State = running
	default:
		container.Ready, container.Started, container.State = true, new(true), running
	}
	phase, ready := corev1.PodRunning, corev1.ConditionTrue
	if !container.Ready {
		phase, ready = corev1.PodPending, corev1.ConditionFalse
	}
	var containers []corev1.ContainerStatus
	for _, c := range pod.Spec.Containers {
		container.Name = c.Name
		containers = append(containers, container)
	}
	readiness := corev1.PodCondition{Type: corev1.PodReady, Status: ready}
	readiness.LastTransitionTime = metav1.NewTime(pod.CreationTimestamp.Add(-time.Minute)) // So that tests do not wait for minReadySeconds.
	return corev1.PodStatus{
		Phase:             phase,
		ContainerStatuses: containers,
		Conditions: []corev1.PodCondition{
			scheduled,
			readiness,
		},
	}
}

package informers

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// The names of the cache indexes of pods, by the Echo that they serve or verify.
const (
	PodsByEcho     = "echo"
	PodsByVerified = "verified echo"
)

// IndexPods adds the indexes.
func IndexPods(ctx context.Context, indexer client.FieldIndexer) error {
	for index, label := range map[string]string{PodsByEcho: children.EchoLabel, PodsByVerified: children.VerifiesLabel} {
		err := indexer.IndexField(ctx, &corev1.Pod{}, index, func(pod client.Object) []string {
			if name := pod.GetLabels()[label]; name != "" {
				return []string{name}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index pods by Echo: %w", err)
		}
	}
	return nil
}

const (
	// maxContainers and maxPodMessage bound the memory of a cached pod. Permission to create pods
	// includes permission to give them the operator's labels.
	maxContainers = 16
	maxPodMessage = 2048
)

// slimPod reduces the memory of a cached pod to the fields that the status and the watch need.
func slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		UID:             pod.UID,
		ResourceVersion: pod.ResourceVersion,

		CreationTimestamp: pod.CreationTimestamp,
	}}
	labels := []string{children.EchoLabel, appsv1.DefaultDeploymentUniqueLabelKey}
	if pod.Labels[children.VerifiesLabel] != "" {
		labels = []string{children.VerifiesLabel, children.ResponseLabel}
		slim.Spec.NodeName = pod.Spec.NodeName
	} else if pod.Labels[children.EchoLabel] == "" {
		return slim, nil // No Echo has this pod.
	}
	slim.DeletionTimestamp = pod.DeletionTimestamp
	slim.Labels = map[string]string{}
	for _, label := range labels {
		slim.Labels[label] = pod.Labels[label]
	}
	slim.Status.Phase = pod.Status.Phase
	if pod.Status.Phase == corev1.PodFailed { // The kubelet rejected or evicted it.
		slim.Status.Reason, slim.Status.Message = pod.Status.Reason, status.Truncate(pod.Status.Message, maxPodMessage)
	}
	slim.Status.Conditions = slimConditions(pod.Status.Conditions)
	slim.Status.InitContainerStatuses = slimContainers(pod.Status.InitContainerStatuses)
	slim.Status.ContainerStatuses = slimContainers(pod.Status.ContainerStatuses)
	return slim, nil
}

// slimConditions returns since when the pod is ready or, if it is not, whether it is scheduled and why it is not ready.
func slimConditions(conditions []corev1.PodCondition) (slim []corev1.PodCondition) {
	for _, c := range conditions {
		reduced := corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: status.Truncate(c.Message, maxPodMessage)}
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		case c.Type == corev1.PodReady, c.Type == corev1.PodScheduled:
			slim = append(slim, reduced)
		}
	}
	return slim
}

// slimContainers returns the first containers that are not ready, because a ready one has no failure.
func slimContainers(containers []corev1.ContainerStatus) []corev1.ContainerStatus {
	var slim []corev1.ContainerStatus
	for _, c := range containers {
		if c.Ready || len(slim) == maxContainers {
			continue
		}
		reduced := corev1.ContainerStatus{Name: c.Name, RestartCount: c.RestartCount, Started: c.Started}
		if waiting := c.State.Waiting; waiting != nil {
			reduced.State.Waiting = &corev1.ContainerStateWaiting{
				Reason: waiting.Reason, Message: status.Truncate(waiting.Message, maxPodMessage),
			}
		}
		if running := c.State.Running; running != nil {
			reduced.State.Running = &corev1.ContainerStateRunning{StartedAt: running.StartedAt}
		}
		if end := c.LastTerminationState.Terminated; end != nil {
			reduced.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: end.ExitCode, Reason: end.Reason, StartedAt: end.StartedAt, FinishedAt: end.FinishedAt,
				Message: status.Truncate(end.Message, maxPodMessage),
			}
		}
		slim = append(slim, reduced)
	}
	return slim
}

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// waitingReasons maps the kubelet's reasons of a waiting container to reasons of an Echo.
// Source: k8s.io/kubernetes/pkg/kubelet (container, images and kuberuntime packages).
var waitingReasons = map[string]string{
	"ErrImagePull":               echov1.ReasonImagePullFailed,
	"ImagePullBackOff":           echov1.ReasonImagePullFailed,
	"InvalidImageName":           echov1.ReasonImagePullFailed,
	"ErrImageNeverPull":          echov1.ReasonImagePullFailed,
	"ImageInspectError":          echov1.ReasonImagePullFailed,
	"RegistryUnavailable":        echov1.ReasonImagePullFailed,
	"SignatureValidationFailed":  echov1.ReasonImagePullFailed,
	"CreateContainerConfigError": echov1.ReasonContainerCreateFailed,
	"CreateContainerError":       echov1.ReasonContainerCreateFailed,
	"RunContainerError":          echov1.ReasonContainerCreateFailed,
	"CrashLoopBackOff":           echov1.ReasonCrashLooping,
}

// failureOfPods returns the failure of the first failed pod, by name, so that the result does
// not depend on the order of the pods.
func failureOfPods(pods []corev1.Pod) *Failure {
	byName := slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for i := range byName {
		if failure := PodFailure(&byName[i]); failure != nil {
			return failure
		}
	}
	return nil
}

// PodFailure returns the failure that prevents the pod from running, or nil. The message does
// not depend on the counter of the kubelet's back-off, so it changes only with the cause.
func PodFailure(pod *corev1.Pod) *Failure {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &Failure{Reason: echov1.ReasonUnschedulable, Message: fmt.Sprintf("Pod %s: %s", pod.Name, c.Message)}
		}
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if failure := failureOfContainer(container); failure != nil {
			failure.Message = fmt.Sprintf("Pod %s, container %s: %s", pod.Name, container.Name, failure.Message)
			return failure
		}
	}
	return nil
}

func failureOfContainer(container corev1.ContainerStatus) *Failure {
	// Between two back-offs, a crashing container has the status of a newly started one.
	if last := container.LastTerminationState.Terminated; last != nil && !container.Ready && container.RestartCount > 1 {
		return &Failure{Reason: echov1.ReasonCrashLooping, Message: terminationMessage(last)}
	}
	waiting := container.State.Waiting
	if waiting == nil {
		return nil
	}
	reason, known := waitingReasons[waiting.Reason]
	if !known {
		return nil
	}
	message := waiting.Message
	if last := container.LastTerminationState.Terminated; last != nil && reason == echov1.ReasonCrashLooping {
		message = terminationMessage(last)
	}
	// The message of the back-off repeats the error after a prefix.
	if _, cause, found := strings.Cut(message, "ErrImagePull: "); found {
		message = cause
	}
	return &Failure{Reason: reason, Message: message}
}

// terminationMessage returns the exit code of a container and the end of its log.
func terminationMessage(end *corev1.ContainerStateTerminated) string {
	message := fmt.Sprintf("exited with code %d", end.ExitCode)
	if log := strings.TrimSpace(end.Message); log != "" {
		message += ": " + log
	}
	return message
}

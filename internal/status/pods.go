package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// waitingReasons maps the kubelet's reasons for a container that waits to ours.
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

// ofPods returns the failure of the first pod by name that has one, so that the answer
// does not depend on the order of the pods.
func ofPods(pods []corev1.Pod) *Failure {
	byName := slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for i := range byName {
		if failure := OfPod(&byName[i]); failure != nil {
			return failure
		}
	}
	return nil
}

// OfPod returns what keeps the pod from running, or nil. The message stays the same while
// the cause does, whatever the kubelet's back-off counts.
func OfPod(pod *corev1.Pod) *Failure {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &Failure{Reason: echov1.ReasonUnschedulable, Message: fmt.Sprintf("Pod %s: %s", pod.Name, c.Message)}
		}
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if failure := ofContainer(container); failure != nil {
			failure.Message = fmt.Sprintf("Pod %s, container %s: %s", pod.Name, container.Name, failure.Message)
			return failure
		}
	}
	return nil
}

func ofContainer(container corev1.ContainerStatus) *Failure {
	// Between two back-offs a crashing container looks as if it had just been started.
	if last := container.LastTerminationState.Terminated; last != nil && !container.Ready && container.RestartCount > 1 {
		return &Failure{Reason: echov1.ReasonCrashLooping, Message: lastWords(last)}
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
		message = lastWords(last)
	}
	// The back-off repeats the error after words of its own.
	if _, cause, found := strings.Cut(message, "ErrImagePull: "); found {
		message = cause
	}
	return &Failure{Reason: reason, Message: message}
}

// lastWords tells how a container ended: its exit code and the end of its log.
func lastWords(end *corev1.ContainerStateTerminated) string {
	words := fmt.Sprintf("exited with code %d", end.ExitCode)
	if log := strings.TrimSpace(end.Message); log != "" {
		words += ": " + log
	}
	return words
}

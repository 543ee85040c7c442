package status

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// crashWindow is the number of seconds for which a container that has restarted, and that is not
// ready, counts as crash looping after its last start or termination.
const crashWindow int64 = 600

// NeedsNewestReplicaSet reports whether the status depends on which ReplicaSet is the newest: a pod
// fails, or is overdue, while the Echo does not serve its newest spec.
func NeedsNewestReplicaSet(echo *echov1.Echo, observed Observation) bool {
	if echo.DeletionTimestamp != nil || !isCurrent(observed.Deployment) || serves(echo, observed) {
		return false
	}
	fails := slices.ContainsFunc(observed.Pods, func(pod corev1.Pod) bool { return PodFailure(&pod, observed.Now) != nil })
	return fails || overdue(echo, observed) != nil
}

// newestPods returns the pods of the newest ReplicaSet that run or are expected to run, by name.
func newestPods(pods []corev1.Pod, newestReplicaSet string) []corev1.Pod {
	return selected(pods, func(pod *corev1.Pod) bool { return isOf(pod, newestReplicaSet) && !isFinished(pod) })
}

// isOf reports whether the pod is one of the ReplicaSet with the hash. That is empty if the ReplicaSet is unknown.
func isOf(pod *corev1.Pod, replicaSet string) bool {
	return replicaSet != "" && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == replicaSet
}

// selected returns the pods that the status is about, by name: the result does not depend on the order of the cache.
func selected(pods []corev1.Pod, isSelected func(*corev1.Pod) bool) []corev1.Pod {
	some := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !isSelected(&pod) })
	slices.SortFunc(some, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return some
}

// isFinished reports whether the pod is being deleted, or will never run again. A pod that was
// evicted has the phase Failed, and its ReplicaSet replaces it.
func isFinished(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func containersOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// failureOfPods returns the failure of the first failed pod of the newest ReplicaSet, by name, so
// that the result does not depend on the order of the pods.
func failureOfPods(echo *echov1.Echo, observed Observation) *Failure {
	if !isCurrent(observed.Deployment) {
		return nil // The newest ReplicaSet does not exist yet.
	}
	pods := newestPods(observed.Pods, observed.NewestReplicaSet)
	waitsForRoom := makesRoom(echo, observed) && slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" })
	for _, pod := range pods {
		failure := PodFailure(&pod, observed.Now)
		if failure == nil || waitsForRoom && failure.Reason == echov1.ReasonUnschedulable {
			continue
		}
		return withAdvice(echo, failure)
	}
	return nil
}

// withoutRoot matches what programs write that need root, or another user than that of the pod.
var withoutRoot = regexp.MustCompile(`(?i)permission denied|operation not permitted|read-only file system|(as|be|requires?) root`)

// withAdvice adds to the cluster's message what the user has to set for an own image that needs root, or whose user has
// a name instead of a number. The operator sets no user for it, because some clusters reject every user that they did
// not assign.
func withAdvice(echo *echov1.Echo, failure *Failure) *Failure {
	switch {
	case failure.Reason == echov1.ReasonContainerCreateFailed && strings.Contains(failure.Message, "runAsNonRoot"):
		failure.Message += ": set spec.pod.runAsUser"
	case echo.Spec.Image != "" && failure.Reason == echov1.ReasonCrashLooping && withoutRoot.MatchString(failure.Message):
		failure.Message = "Pods never run as root: the image may need its own user in spec.pod.runAsUser, or a variant that runs without root: " + failure.Message
	}
	return failure
}

// PodFailure returns the failure that prevents the pod from running, or nil. The message does
// not depend on the counter of the kubelet's back-off, so it changes only with the cause.
func PodFailure(pod *corev1.Pod, now metav1.Time) *Failure {
	if isFinished(pod) {
		return nil
	}
	if c := podCondition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return &Failure{Reason: echov1.ReasonUnschedulable, Message: fmt.Sprintf("Pod %s: %s", pod.Name, c.Message)}
	}
	for _, container := range containersOf(pod) {
		if failure := failureOfContainer(container, now); failure != nil {
			failure.Message = fmt.Sprintf("Pod %s, container %s: %s", pod.Name, container.Name, failure.Message)
			return failure
		}
	}
	return nil
}

func failureOfContainer(container corev1.ContainerStatus, now metav1.Time) *Failure {
	// Between two back-offs, a crashing container has the status of a newly started one.
	last := container.LastTerminationState.Terminated
	isRestarted := last != nil && !container.Ready && container.RestartCount > 1
	if isRestarted && ranBriefly(last) && now.Unix() <= lastRun(container)+crashWindow {
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
	if last != nil && reason == echov1.ReasonCrashLooping {
		message = terminationMessage(last)
	}
	// The message of the back-off repeats the error after a prefix.
	if _, cause, found := strings.Cut(message, "ErrImagePull: "); found {
		message = cause
	}
	return &Failure{Reason: reason, Message: message}
}

// ranBriefly reports whether a container terminated so soon after its start that it may do so again.
func ranBriefly(end *corev1.ContainerStateTerminated) bool {
	return end.StartedAt.IsZero() || end.FinishedAt.Unix()-end.StartedAt.Unix() < crashWindow
}

// lastRun returns the time, in seconds, at which the container last started or terminated.
func lastRun(container corev1.ContainerStatus) int64 {
	var last metav1.Time
	if running := container.State.Running; running != nil {
		last = running.StartedAt
	}
	if end := container.LastTerminationState.Terminated; end != nil {
		return max(last.Unix(), end.FinishedAt.Unix())
	}
	return last.Unix()
}

// crashWindowLeft returns the number of seconds until the first container of the newest ReplicaSet
// no longer counts as crash looping if it does not terminate again.
func crashWindowLeft(observed Observation) int64 {
	left := crashWindow
	for _, pod := range newestPods(observed.Pods, observed.NewestReplicaSet) {
		for _, container := range containersOf(&pod) {
			if end := lastRun(container) + crashWindow + 1 - observed.Now.Unix(); end > 0 {
				left = min(left, end)
			}
		}
	}
	return left
}

// terminationMessage returns the exit code of a container, the kubelet's reason if it says more,
// and the end of the container's log.
func terminationMessage(end *corev1.ContainerStateTerminated) string {
	message := fmt.Sprintf("exited with code %d", end.ExitCode)
	if !slices.Contains([]string{"", "Error", "Completed"}, end.Reason) {
		message += " (" + end.Reason + ")"
	}
	if log := strings.TrimSpace(end.Message); log != "" {
		message += ": " + log
	}
	return message
}

package status

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// waitingReasons maps the kubelet's reasons of a waiting container to reasons of an Echo.
// Source: k8s.io/kubernetes/pkg/kubelet (container, images and kuberuntime packages).
var waitingReasons = map[string]string{
	"ErrImagePull":               echov1.ReasonImagePullFailed,
	"ImagePullBackOff":           echov1.ReasonImagePullFailed,
	"InvalidImageName":           echov1.ReasonContainerCreateFailed,
	"ErrImageNeverPull":          echov1.ReasonImagePullFailed,
	"ImageInspectError":          echov1.ReasonImagePullFailed,
	"RegistryUnavailable":        echov1.ReasonImagePullFailed,
	"SignatureValidationFailed":  echov1.ReasonImagePullFailed,
	"CreateContainerConfigError": echov1.ReasonContainerCreateFailed,
	"CreateContainerError":       echov1.ReasonContainerCreateFailed,
	"RunContainerError":          echov1.ReasonContainerCreateFailed,
	"CrashLoopBackOff":           echov1.ReasonCrashLooping,
}

// crashWindow is how long a container that has restarted, and that is not ready, counts as crash looping after its last
// start or termination.
const crashWindow = 600 * time.Second

// selected returns some of the pods by name, so that the status does not depend on the order of the cache.
func selected(pods []corev1.Pod, isSelected func(*corev1.Pod) bool) []corev1.Pod {
	some := slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool { return !isSelected(&pod) })
	slices.SortFunc(some, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return some
}

// hashOf returns the hash of the pod template of the pod's ReplicaSet.
func hashOf(pod *corev1.Pod) string { return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] }

// isFinished reports whether the pod is being deleted, or will never run again. A pod that was
// evicted has the phase Failed, and its ReplicaSet replaces it.
func isFinished(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

func containersOf(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func isPodReady(pod *corev1.Pod) bool {
	return !isFinished(pod) && podCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

// ReadyPods returns the pods that are ready, by name.
func ReadyPods(pods []corev1.Pod) []corev1.Pod { return selected(pods, isPodReady) }

// lastReady returns the time at which the last of the ready pods became ready, or a zero time.
func lastReady(pods []corev1.Pod) (last time.Time) {
	for i := range pods {
		if at := podCondition(&pods[i], corev1.PodReady).LastTransitionTime.Time; isPodReady(&pods[i]) && at.After(last) {
			last = at
		}
	}
	return last
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
	if c := podCondition(pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
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
	if isRestarted && ranBriefly(last) && !now.After(lastRun(container).Add(crashWindow)) {
		return &Failure{Reason: echov1.ReasonCrashLooping, Message: terminationMessage(last)}
	}
	waiting := ptr.Deref(container.State.Waiting, corev1.ContainerStateWaiting{})
	reason := waitingReasons[waiting.Reason]
	if reason == "" {
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
	return end.StartedAt.IsZero() || end.FinishedAt.Sub(end.StartedAt.Time) < crashWindow
}

// lastRun returns when the container last started or terminated.
func lastRun(container corev1.ContainerStatus) time.Time {
	running := ptr.Deref(container.State.Running, corev1.ContainerStateRunning{})
	end := ptr.Deref(container.LastTerminationState.Terminated, corev1.ContainerStateTerminated{})
	return latest(running.StartedAt.Time, end.FinishedAt.Time)
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

// causeOfPods returns why the first pod of those that a ReplicaSet or a DaemonSet has now is not ready, or an empty
// text. If it has none, the last one that the kubelet rejected says why.
func causeOfPods(pods []corev1.Pod, isNewest func(*corev1.Pod) bool) string {
	newest := selected(pods, isNewest)
	for i := range newest {
		if text := PodCause(&newest[i]); text != "" {
			return text
		}
	}
	var rejected *corev1.Pod
	for i := range newest {
		pod := &newest[i]
		isRejected := pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodFailed
		if isRejected && (rejected == nil || rejected.CreationTimestamp.Before(&pod.CreationTimestamp)) {
			rejected = pod
		}
	}
	if rejected == nil {
		return ""
	}
	return fmt.Sprintf("Pod %s: %s: %s", rejected.Name, cmp.Or(rejected.Status.Reason, string(rejected.Status.Phase)), rejected.Status.Message)
}

// PodState returns what the status may have from a pod, as one text: its failure; the started containers of a verifier's
// pod that are not ready, which are those of the layers on which the response is not verified, and those that others
// added, for example a service mesh; and the PodCause, once the pod had more time than the deadline to become ready.
func PodState(pod *corev1.Pod, now metav1.Time) (state string) {
	if failure := PodFailure(pod, now); failure != nil {
		state = failure.Reason + failure.Message
	}
	isVerifier := pod.Labels[children.VerifiesLabel] != "" && !isFinished(pod)
	for _, container := range containersOf(pod) {
		if isVerifier && isFailing(container) {
			state += " " + container.Name
		}
	}
	if isOverdue := !now.Time.Before(pod.CreationTimestamp.Add(deadline)); isOverdue {
		state += PodCause(pod)
	}
	return state
}

// PodCause returns what the cluster says about a pod that is not ready, or an empty text for any other pod.
func PodCause(pod *corev1.Pod) string {
	if isFinished(pod) {
		return ""
	}
	scheduled, ready := podCondition(pod, corev1.PodScheduled), podCondition(pod, corev1.PodReady)
	if ready.Status == corev1.ConditionTrue {
		return ""
	}
	state := "is not ready"
	switch container := waitingContainer(pod); {
	case scheduled.Status != "" && scheduled.Status != corev1.ConditionTrue:
		state = "is not scheduled: " + joinReason(scheduled.Reason, scheduled.Message)
	case container != nil && container.State.Waiting != nil:
		state = fmt.Sprintf("container %s waits: %s", container.Name, joinReason(container.State.Waiting.Reason, container.State.Waiting.Message))
	case container != nil && container.State.Running != nil:
		state = fmt.Sprintf("container %s runs, but its probe fails", container.Name)
	case container != nil:
		state = fmt.Sprintf("container %s does not run", container.Name)
	case scheduled.Status == "" && pod.Spec.NodeName == "":
		state = "is not scheduled"
	case ready.Status != "":
		state = "is not ready: " + joinReason(ready.Reason, ready.Message)
	}
	return fmt.Sprintf("Pod %s: %s", pod.Name, state)
}

// joinReason joins a reason and a message of the cluster.
func joinReason(reason, message string) string {
	if reason == "" || message == "" {
		return cmp.Or(reason, message, "no reason is reported")
	}
	return reason + ": " + message
}

// waitingContainer returns the first container that is not ready, or nil.
func waitingContainer(pod *corev1.Pod) *corev1.ContainerStatus {
	containers := containersOf(pod)
	i := slices.IndexFunc(containers, func(c corev1.ContainerStatus) bool { return !c.Ready }) // A completed init container is.
	if i < 0 {
		return nil
	}
	return &containers[i]
}

// podCondition returns a condition of the pod, or an empty condition.
func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) corev1.PodCondition {
	return find(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionType })
}

// isFailing reports whether a container has started and is not ready.
func isFailing(container corev1.ContainerStatus) bool {
	return container.Started != nil && *container.Started && !container.Ready
}

const (
	// maxContainers and maxPodMessage bound the memory of a cached pod. Permission to create pods
	// includes permission to give them the operator's labels.
	maxContainers = 16
	maxPodMessage = 2048
)

// TransformPod returns a pod with only what this package and the watch read, for the cache.
func TransformPod(pod *corev1.Pod) *corev1.Pod {
	reduced := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:         pod.Namespace,
		Name:              pod.Name,
		UID:               pod.UID,
		ResourceVersion:   pod.ResourceVersion,
		CreationTimestamp: pod.CreationTimestamp,
	}}
	labels := []string{children.EchoLabel, appsv1.DefaultDeploymentUniqueLabelKey, children.ResponseLabel}
	switch {
	case pod.Labels[children.VerifiesLabel] != "":
		labels = []string{children.VerifiesLabel, children.ResponseLabel}
	case pod.Labels[children.EchoLabel] == "":
		return reduced // No Echo has this pod.
	}
	reduced.DeletionTimestamp = pod.DeletionTimestamp
	reduced.Labels = map[string]string{}
	for _, label := range labels {
		reduced.Labels[label] = pod.Labels[label]
	}
	reduced.Spec.NodeName = pod.Spec.NodeName
	reduced.Status.Phase = pod.Status.Phase
	if pod.Status.Phase == corev1.PodFailed { // The kubelet rejected or evicted it.
		reduced.Status.Reason, reduced.Status.Message = pod.Status.Reason, Truncate(pod.Status.Message, maxPodMessage)
	}
	reduced.Status.Conditions = transformConditions(pod)
	reduced.Status.InitContainerStatuses = transformContainers(pod.Status.InitContainerStatuses)
	reduced.Status.ContainerStatuses = transformContainers(pod.Status.ContainerStatuses)
	return reduced
}

// transformConditions returns since when the pod is ready or, if it is not, whether it is scheduled and why it is not
// ready.
func transformConditions(pod *corev1.Pod) (reduced []corev1.PodCondition) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			for i, gate := range pod.Spec.SchedulingGates { // The condition does not name them.
				c.Message += []string{": ", ", "}[min(i, 1)] + gate.Name
			}
		}
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		case c.Type == corev1.PodReady, c.Type == corev1.PodScheduled:
			reduced = append(reduced, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: Truncate(c.Message, maxPodMessage)})
		}
	}
	return reduced
}

// transformContainers returns the first containers that are not ready, because a ready one has no failure.
func transformContainers(containers []corev1.ContainerStatus) (reduced []corev1.ContainerStatus) {
	for _, c := range containers {
		if c.Ready || len(reduced) == maxContainers {
			continue
		}
		kept := corev1.ContainerStatus{Name: c.Name, RestartCount: c.RestartCount, Started: c.Started}
		kept.State.Running = c.State.Running
		if waiting := c.State.Waiting; waiting != nil {
			kept.State.Waiting = &corev1.ContainerStateWaiting{Reason: waiting.Reason, Message: Truncate(waiting.Message, maxPodMessage)}
		}
		if end := c.LastTerminationState.Terminated.DeepCopy(); end != nil {
			end.Message, end.ContainerID = Truncate(end.Message, maxPodMessage), ""
			kept.LastTerminationState.Terminated = end
		}
		reduced = append(reduced, kept)
	}
	return reduced
}

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// deadline is the number of seconds for which the operator waits for the next progress of anything: the server, the
// verifier, what their controllers create, and the route. Then the status names the cause.
//
// The start is always the time of an object, so a restart of the operator does not start it again:
//
//	a rollout                           Progressing of the Echo, the last pod that became ready
//	pods that were lost later           Available of the Deployment
//	a verifier                          Verified of the Echo, the end of the rollout, the start of its container
//	a route                             Routed of the Echo
const deadline int64 = 120

// isOver reports whether the deadline is over that began at that time, in seconds.
func (o Observation) isOver(since int64) bool { return o.left(since) == 0 }

// left returns how many seconds are left until the deadline.
func (o Observation) left(since int64) int64 { return max(0, since+deadline-o.Now.Unix()) }

// rolloutIsOverdue reports whether a rollout has waited for too long. It remains overdue until the Echo serves: what
// is late may become ready again and again.
func rolloutIsOverdue(echo *echov1.Echo, observed Observation) bool {
	if previousProgressing(echo, metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded) != nil {
		return true
	}
	c := deploymentCondition(observed.Deployment, appsv1.DeploymentProgressing)
	hasTimedOut := c != nil && c.Status == corev1.ConditionFalse
	return hasTimedOut || observed.Now.Unix() >= rolloutDeadline(echo, observed)
}

// rolloutDeadline returns the time, in seconds, at which a rollout that is in flight is overdue. A pod that becomes ready
// is progress. One that is ready again and again is none, so the time is over after one deadline for each replica in any
// case. The Deployment controller also counts a pod that replaces one that the kubelet has rejected.
//
//	start                 a pod is ready         another one
//	|--------- 80 s ---------|------- 100 s -------|--------------- 120 s ---------------| overdue
func rolloutDeadline(echo *echov1.Echo, observed Observation) int64 {
	start := observed.Now.Unix() // The rollout starts now.
	if inFlight := previousProgressing(echo, metav1.ConditionTrue, echov1.ReasonRollingOut); inFlight != nil {
		start = inFlight.LastTransitionTime.Unix()
	}
	progress := max(start, lastReady(observed.Pods))
	return min(progress+deadline, start+int64(echo.Spec.Replicas)*deadline)
}

// unavailableSince returns since when, in seconds, a Deployment whose rollout was complete lacks an available pod.
func unavailableSince(echo *echov1.Echo, observed Observation) int64 {
	if c := deploymentCondition(observed.Deployment, appsv1.DeploymentAvailable); c != nil && c.Status != corev1.ConditionTrue {
		return c.LastTransitionTime.Unix()
	}
	if c := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Unix()
	}
	return observed.Now.Unix()
}

// unknownSince returns since when, in seconds, a condition of the Echo is Unknown for this generation.
func unknownSince(echo *echov1.Echo, conditionType string, now metav1.Time) int64 {
	before := meta.FindStatusCondition(echo.Status.Conditions, conditionType)
	if before == nil || before.Status != metav1.ConditionUnknown || before.ObservedGeneration != echo.Generation {
		return now.Unix()
	}
	return before.LastTransitionTime.Unix()
}

// overdue returns the failure of servers that the operator has waited for too long, or nil.
func overdue(echo *echov1.Echo, observed Observation) *Failure {
	switch {
	case isUpdated(echo, observed):
		if !observed.isOver(unavailableSince(echo, observed)) {
			return nil
		}
		return &Failure{Reason: echov1.ReasonPodsNotReady, Message: "A pod is not available for a long time: " + cause(echo, observed)}
	case rolloutIsOverdue(echo, observed):
		return &Failure{Reason: echov1.ReasonProgressDeadlineExceeded, Message: "The rollout has not completed in time: " + cause(echo, observed)}
	default:
		return nil
	}
}

// cause returns what the cluster says about servers that are overdue. If it says nothing, cause returns how far they
// are, and the command that shows the events.
func cause(echo *echov1.Echo, observed Observation) string {
	if len(observed.Waiting) > 0 {
		return strings.Join(observed.Waiting, "; ")
	}
	if c := rejectedReplicaSet(observed.Deployment); c != nil {
		return c.Message + restartHint(echo, children.Name(echo))
	}
	isNewest := func(pod *corev1.Pod) bool { return isOf(pod, observed.NewestReplicaSet) }
	if text := causeOfPods(observed.Pods, isNewest); text != "" {
		return text + eventsOfServer(echo)
	}
	text := fmt.Sprintf("Deployment %s: %s", children.Name(echo), progress(echo, observed))
	switch {
	case observed.Deployment == nil:
		text = fmt.Sprintf("Deployment %s does not exist", children.Name(echo))
	case observed.Service == nil:
		text = fmt.Sprintf("Service %s does not exist", children.Name(echo))
	case !isCurrent(observed.Deployment):
		text = fmt.Sprintf("the Deployment controller has not observed the newest spec of Deployment %s", children.Name(echo))
	}
	return text + eventsOfServer(echo)
}

// replicaSetCreateError is the Deployment controller's reason for a ReplicaSet that it could not create. It does not
// set observedGeneration then.
// Source: k8s.io/kubernetes/pkg/controller/deployment/util.
const replicaSetCreateError = "ReplicaSetCreateError"

func rejectedReplicaSet(deployment *appsv1.Deployment) *appsv1.DeploymentCondition {
	if deployment == nil {
		return nil
	}
	i := slices.IndexFunc(deployment.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Reason == replicaSetCreateError })
	if i < 0 {
		return nil
	}
	return &deployment.Status.Conditions[i]
}

// restartHint returns the command after which the Deployment controller tries again: it gives up after three minutes.
func restartHint(echo *echov1.Echo, deployment string) string {
	return fmt.Sprintf(" (when that is solved: kubectl rollout restart -n %s deployment %s)", echo.Namespace, deployment)
}

// eventsOfServer and eventsOfVerifier return the command that shows the events of what a child creates. The operator
// does not read them.
func eventsOfServer(echo *echov1.Echo) string {
	return events(echo, fmt.Sprintf("deployments,replicasets,pods -l %s=%s", children.EchoLabel, echo.Name))
}

func eventsOfVerifier(echo *echov1.Echo) string {
	return events(echo, fmt.Sprintf("replicasets,pods -l %s=%s", children.VerifiesLabel, echo.Name))
}

func events(echo *echov1.Echo, objects string) string {
	return fmt.Sprintf(" (its events: kubectl describe -n %s %s)", echo.Namespace, objects)
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

// IsOverdue reports whether a pod had more time than the deadline to become ready. Then the status may have its PodCause.
func IsOverdue(pod *corev1.Pod, now metav1.Time) bool {
	return now.Unix() >= pod.CreationTimestamp.Unix()+deadline
}

// PodCause returns what the cluster says about a pod that is not ready, or an empty text for any other pod.
func PodCause(pod *corev1.Pod) string {
	if isFinished(pod) {
		return ""
	}
	scheduled, ready := podCondition(pod, corev1.PodScheduled), podCondition(pod, corev1.PodReady)
	if ready != nil && ready.Status == corev1.ConditionTrue {
		return ""
	}
	state := "is not ready"
	switch container := waitingContainer(pod); {
	case scheduled != nil && scheduled.Status != corev1.ConditionTrue:
		state = "is not scheduled: " + said(scheduled.Reason, scheduled.Message)
	case container != nil && container.State.Waiting != nil:
		state = fmt.Sprintf("container %s waits: %s", container.Name, said(container.State.Waiting.Reason, container.State.Waiting.Message))
	case container != nil && container.State.Running != nil:
		state = fmt.Sprintf("container %s runs, but its probe fails", container.Name)
	case container != nil:
		state = fmt.Sprintf("container %s does not run", container.Name)
	case scheduled == nil && pod.Spec.NodeName == "":
		state = "is not scheduled"
	case ready != nil:
		state = "is not ready: " + said(ready.Reason, ready.Message)
	}
	return fmt.Sprintf("Pod %s: %s", pod.Name, state)
}

// said joins a reason and a message of the cluster.
func said(reason, message string) string {
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

func podCondition(pod *corev1.Pod, conditionType corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == conditionType })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// RolloutInFlight reports whether the status describes a rollout that is expected to complete
// without a change by the user. A failed rollout is not in flight: it may wait indefinitely.
func RolloutInFlight(status echov1.EchoStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionProgressing) &&
		!meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionDegraded)
}

// rollout returns the condition Progressing, and why the servers do not serve the newest spec.
func (a *Assessment) rollout() verdict {
	var failure *Failure
	if !a.serves() {
		failure = a.rolloutFailure()
	}
	var crashEnd time.Time
	if failure != nil && failure.Reason == echov1.ReasonCrashLooping {
		crashEnd = a.crashWindowEnd()
	}
	switch {
	case failure != nil && !a.IsUpdated && a.isOverdue:
		return verdict{
			condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded, "%s", failure.Message),
			failure, crashEnd,
		}
	case !a.isRolledOut:
		end := a.rolloutDeadline
		switch {
		case a.IsUpdated:
			end = a.earlierPodsEnd
		case a.replicaFailure.Status == corev1.ConditionTrue:
			end = a.next(end, a.rolloutStart.Add(countLag))
		}
		return verdict{condition(echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut, "%s", a.progress()), failure, end}
	default:
		end := crashEnd
		if failure == nil && !a.isAvailable {
			end = a.unavailableSince().Add(deadline)
		}
		return verdict{condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonRolledOut, "Every pod runs the newest spec"), failure, end}
	}
}

// progress describes a rollout that has not completed.
func (a *Assessment) progress() string {
	if len(a.Waiting) > 0 {
		return strings.Join(a.Waiting, "; ")
	}
	var updated int32
	if a.isCurrent {
		updated = a.pods.UpdatedReplicas
	}
	message := fmt.Sprintf("%d of %d pods run the newest spec, %d are available", updated, a.echo.Spec.Replicas, a.pods.AvailableReplicas)
	if a.IsUpdated && a.earlierPods > 0 {
		message += fmt.Sprintf("; clients may still reach %d of an earlier spec until they have stopped", a.earlierPods)
	}
	if a.replicaFailure.Status == corev1.ConditionTrue {
		message += "; the others wait: " + a.replicaFailure.Message
	}
	return message
}

// rolloutFailure returns the most severe failure of servers that do not serve the newest spec, or nil.
func (a *Assessment) rolloutFailure() *Failure {
	if len(a.Rejected) > 0 {
		return join(a.Rejected)
	}
	if a.replicaFailure.Status == corev1.ConditionTrue && !a.makesRoom() {
		return &Failure{Reason: echov1.ReasonPodsRejected, Message: a.replicaFailure.Message}
	}
	if failure := a.failureOfPods(); failure != nil {
		return failure
	}
	switch {
	case !a.isLate():
		return nil
	case a.IsUpdated:
		return &Failure{Reason: echov1.ReasonPodsNotReady, Message: "A pod is not available for a long time: " + a.cause()}
	default:
		return &Failure{Reason: echov1.ReasonProgressDeadlineExceeded, Message: "The rollout has not completed in time: " + a.cause()}
	}
}

// isLate reports whether servers that do not serve have had their time.
func (a *Assessment) isLate() bool {
	if a.IsUpdated {
		return a.expired(a.unavailableSince().Add(deadline))
	}
	return a.isOverdue
}

// rejections are the reasons of Observation.Rejected, most severe first.
var rejections = []string{echov1.ReasonConflict, echov1.ReasonRejected, echov1.ReasonRepeatedDrift}

// join returns one failure with the most severe reason and all messages.
func join(failures []Failure) *Failure {
	severity := func(failure Failure) int { return slices.Index(rejections, failure.Reason) }
	messages := make([]string, len(failures))
	for i, failure := range failures {
		messages[i] = failure.Message
	}
	return &Failure{
		Reason:  slices.MinFunc(failures, func(a, b Failure) int { return cmp.Compare(severity(a), severity(b)) }).Reason,
		Message: strings.Join(messages, "; "),
	}
}

// failureOfPods returns the failure of the first failed pod of the newest ReplicaSet, by name, so
// that the result does not depend on the order of the pods.
func (a *Assessment) failureOfPods() *Failure {
	if !a.isCurrent {
		return nil // The newest ReplicaSet does not exist yet.
	}
	pods := a.newestPods()
	waitsForRoom := a.makesRoom() && slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != "" })
	for i := range pods {
		failure := PodFailure(&pods[i], a.Now)
		if failure == nil || waitsForRoom && failure.Reason == echov1.ReasonUnschedulable {
			continue
		}
		return withAdvice(a.echo, failure)
	}
	return nil
}

// newestPods returns the pods of the newest ReplicaSet that run or are expected to run, by name.
func (a *Assessment) newestPods() []corev1.Pod {
	return selected(a.Pods, func(pod *corev1.Pod) bool { return a.isNewest(pod) && !isFinished(pod) })
}

func (a *Assessment) isNewest(pod *corev1.Pod) bool {
	return a.NewestReplicaSet != "" && hashOf(pod) == a.NewestReplicaSet
}

// crashWindowEnd returns when the first container of the newest ReplicaSet does not count as crash looping any more
// if it does not terminate again.
func (a *Assessment) crashWindowEnd() (end time.Time) {
	for _, pod := range a.newestPods() {
		for _, container := range containersOf(&pod) {
			end = a.next(end, lastRun(container).Add(crashWindow+time.Second))
		}
	}
	return end
}

// cause returns what the cluster says about servers that are overdue. If it says nothing, cause returns how far they
// are, and the command that shows the events.
func (a *Assessment) cause() string {
	if len(a.Waiting) > 0 {
		return strings.Join(a.Waiting, "; ")
	}
	if message := replicaSetRejection(a.Deployment); message != "" {
		return message + restartHint(a.echo, children.Name(a.echo))
	}
	text := causeOfPods(a.Pods, a.isNewest)
	switch {
	case text != "":
	case a.Deployment == nil:
		text = fmt.Sprintf("Deployment %s does not exist", children.Name(a.echo))
	case a.Service == nil:
		text = fmt.Sprintf("Service %s does not exist", children.Name(a.echo))
	case !a.isCurrent:
		text = fmt.Sprintf("the Deployment controller has not observed the newest spec of Deployment %s", children.Name(a.echo))
	default:
		text = fmt.Sprintf("Deployment %s: %s", children.Name(a.echo), a.progress())
	}
	return text + eventsHint(a.echo, "deployments,", children.EchoLabel)
}

// replicaSetCreateError is the Deployment controller's reason for a ReplicaSet that it could not create. It does not
// set observedGeneration then.
// Source: k8s.io/kubernetes/pkg/controller/deployment/util.
const replicaSetCreateError = "ReplicaSetCreateError"

// replicaSetRejection returns why the ReplicaSet of a Deployment was rejected, or an empty text.
func replicaSetRejection(deployment *appsv1.Deployment) string {
	if deployment == nil {
		return ""
	}
	return find(deployment.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Reason == replicaSetCreateError }).Message
}

// restartHint returns the command after which the Deployment controller tries again: it gives up after three minutes.
func restartHint(echo *echov1.Echo, deployment string) string {
	return fmt.Sprintf(" (when that is solved: kubectl rollout restart -n %s deployment %s)", echo.Namespace, deployment)
}

// eventsHint returns the command that shows the events of the ReplicaSets and pods with the label, and of other kinds.
// The operator does not read events.
func eventsHint(echo *echov1.Echo, kinds, label string) string {
	return fmt.Sprintf(" (its events: kubectl describe -n %s %sreplicasets,pods -l %s=%s)", echo.Namespace, kinds, label, echo.Name)
}

// Package status computes the status of an Echo from its observed children and pods.
package status

import (
	"fmt"
	"strings"
	"unicode"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// Failure is a failure that the status reports.
type Failure struct {
	// Reason is one of the reasons of failures in package v1.
	Reason string
	// Message is the message of the component that reported the failure.
	Message string
}

// Observation is the state that a reconciliation observed after it reconciled the children.
type Observation struct {
	// Deployment as the API server last returned it. It is nil while the Echo controls none.
	Deployment *appsv1.Deployment
	// HasService is true if the Echo controls a Service that is not being deleted.
	HasService bool
	// Rejected has a failure for each child that could not be written.
	Rejected []Failure
	// Pods of the Echo.
	Pods []corev1.Pod
}

// Of returns the status for an observation. Its conditions have no transition times, because
// those depend on the clock and on the previous conditions.
func Of(echo *echov1.Echo, observed Observation) echov1.EchoStatus {
	var pods appsv1.DeploymentStatus
	if observed.Deployment != nil {
		pods = observed.Deployment.Status
	}
	status := echov1.EchoStatus{
		Ready:              fmt.Sprintf("%d/%d", pods.ReadyReplicas, echo.Spec.Replicas),
		Replicas:           pods.Replicas,
		AvailableReplicas:  pods.AvailableReplicas,
		Selector:           children.Selector(echo).String(),
		URL:                children.URL(echo),
		ObservedGeneration: echo.Generation,
	}
	for _, condition := range conditions(echo, observed, pods) {
		condition.ObservedGeneration = echo.Generation
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

// RolloutInFlight reports whether the status describes a rollout that is expected to complete
// without a change by the user. A failed rollout is not in flight: it may wait indefinitely.
func RolloutInFlight(status echov1.EchoStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionProgressing) &&
		!meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionDegraded)
}

// conditions returns Ready, Available, Progressing and Degraded.
func conditions(echo *echov1.Echo, observed Observation, pods appsv1.DeploymentStatus) []metav1.Condition {
	var (
		desired   = echo.Spec.Replicas
		rolledOut = isRolledOut(observed, desired)
		allServe  = pods.AvailableReplicas >= desired
		failure   *Failure
	)
	if !rolledOut || !allServe {
		failure = mostSevere(observed)
	}

	available := condition(echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing,
		"%d of %d pods are available", pods.AvailableReplicas, desired)
	switch {
	case !observed.HasService:
		available = condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "The Echo has no Service")
	case pods.AvailableReplicas == 0:
		available = condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "No pod is available")
	}

	progressing := condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonRolledOut, "Every pod runs the newest spec")
	switch {
	case failure != nil && failure.Reason == echov1.ReasonProgressDeadlineExceeded:
		progressing = condition(echov1.ConditionProgressing, metav1.ConditionFalse, failure.Reason, "%s", failure.Message)
	case !rolledOut:
		progressing = condition(echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut,
			"%d of %d pods run the newest spec, %d are available", updatedPods(observed.Deployment), desired, pods.AvailableReplicas)
	}

	degraded := condition(echov1.ConditionDegraded, metav1.ConditionFalse, echov1.ReasonAsExpected, "No failure observed")
	if failure != nil {
		degraded = condition(echov1.ConditionDegraded, metav1.ConditionTrue, failure.Reason, "%s", failure.Message)
	}

	ready := condition(echov1.ConditionReady, metav1.ConditionTrue, echov1.ReasonReady, "Every pod serves the newest spec")
	switch {
	case failure != nil:
		ready = condition(echov1.ConditionReady, metav1.ConditionFalse, failure.Reason, "%s", failure.Message)
	case !rolledOut:
		ready = condition(echov1.ConditionReady, metav1.ConditionFalse, progressing.Reason, "%s", progressing.Message)
	case !allServe:
		ready = condition(echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonPodsNotReady, "%s", available.Message)
	}
	return []metav1.Condition{ready, available, progressing, degraded}
}

// isRolledOut reports whether every child is written, the newest spec has served at least once,
// and no pod of an earlier spec is left.
func isRolledOut(observed Observation, desired int32) bool {
	progressing := deploymentCondition(observed.Deployment, appsv1.DeploymentProgressing)
	return len(observed.Rejected) == 0 && observed.HasService &&
		progressing != nil && progressing.Reason == newReplicaSetAvailable &&
		observed.Deployment.Status.UpdatedReplicas >= desired &&
		observed.Deployment.Status.Replicas == observed.Deployment.Status.UpdatedReplicas
}

// newReplicaSetAvailable is the Deployment controller's reason for a completed rollout.
// Source: k8s.io/kubernetes/pkg/controller/deployment/util.
const newReplicaSetAvailable = "NewReplicaSetAvailable"

// isCurrent reports whether the status of the Deployment describes its newest spec.
func isCurrent(deployment *appsv1.Deployment) bool {
	return deployment != nil && deployment.Status.ObservedGeneration >= deployment.Generation
}

// updatedPods returns the number of pods that run the newest spec. It is 0 until the
// Deployment controller has observed that spec.
func updatedPods(deployment *appsv1.Deployment) int32 {
	if !isCurrent(deployment) {
		return 0
	}
	return deployment.Status.UpdatedReplicas
}

// mostSevere returns the most severe failure of an Echo that does not serve its newest spec.
func mostSevere(observed Observation) *Failure {
	if len(observed.Rejected) > 0 {
		return join(observed.Rejected)
	}
	if failure := podsRejected(observed.Deployment); failure != nil {
		return failure
	}
	if failure := failureOfPods(observed.Pods); failure != nil {
		return failure
	}
	return deadlineExceeded(observed.Deployment)
}

// join returns one failure with the most severe reason and all messages.
func join(failures []Failure) *Failure {
	all := Failure{Reason: failures[0].Reason}
	messages := make([]string, len(failures))
	for i, failure := range failures {
		messages[i] = failure.Message
		if failure.Reason == echov1.ReasonConflict {
			all.Reason = failure.Reason
		}
	}
	all.Message = strings.Join(messages, "; ")
	return &all
}

func podsRejected(deployment *appsv1.Deployment) *Failure {
	if c := deploymentCondition(deployment, appsv1.DeploymentReplicaFailure); c != nil && c.Status == corev1.ConditionTrue {
		return &Failure{Reason: echov1.ReasonPodsRejected, Message: c.Message}
	}
	return nil
}

func deadlineExceeded(deployment *appsv1.Deployment) *Failure {
	if c := deploymentCondition(deployment, appsv1.DeploymentProgressing); c != nil && c.Status == corev1.ConditionFalse {
		return &Failure{Reason: echov1.ReasonProgressDeadlineExceeded, Message: c.Message}
	}
	return nil
}

// deploymentCondition returns nil while the status of the Deployment describes an earlier spec.
func deploymentCondition(deployment *appsv1.Deployment, conditionType appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	if !isCurrent(deployment) {
		return nil
	}
	for i := range deployment.Status.Conditions {
		if c := &deployment.Status.Conditions[i]; c.Type == conditionType {
			return c
		}
	}
	return nil
}

// maxMessage is the maximum number of characters of a message. The API allows 32,768.
const maxMessage = 2048

func condition(conditionType string, status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type: conditionType, Status: status, Reason: reason,
		Message: Truncate(fmt.Sprintf(format, args...), maxMessage),
	}
}

// Truncate returns at most limit characters of the text on one line. A truncated text ends with
// an ellipsis. Truncate replaces unprintable characters with spaces, because terminals show the
// text and its source is not trusted: it may be, for example, the log of a server.
func Truncate(text string, limit int) string {
	runes := []rune(text)
	left := min(len(runes), limit)
	for i, r := range runes[:left] {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	if left < len(runes) {
		runes[left-1] = '…'
	}
	return string(runes[:left])
}

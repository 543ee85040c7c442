// Package status works out the status of an Echo from what was observed.
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

// Failure is one thing that is wrong.
type Failure struct {
	// Reason is one of the reasons of failures in package v1.
	Reason string
	// Message says what refused, in its own words.
	Message string
}

// Observation is what one pass saw after it had applied the children.
type Observation struct {
	// Deployment as the API server last returned it; nil while the Echo has none of its own.
	Deployment *appsv1.Deployment
	// HasService is true when the Echo's own Service is in place.
	HasService bool
	// Refused tells of the children that could not be put in place.
	Refused []Failure
	// Pods of the Echo.
	Pods []corev1.Pod
}

// Of returns the status that the observation justifies. Its conditions carry no transition
// times, as those depend on a clock and on the conditions before.
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

// RolloutInFlight tells whether the status speaks of a rollout that goes on and is expected
// to end by itself. One that has failed waits for somebody, for as long as it takes.
func RolloutInFlight(status echov1.EchoStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionProgressing) &&
		!meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionDegraded)
}

func conditions(echo *echov1.Echo, observed Observation, pods appsv1.DeploymentStatus) []metav1.Condition {
	var (
		wanted    = echo.Spec.Replicas
		rolledOut = isRolledOut(observed, wanted)
		allServe  = pods.AvailableReplicas >= wanted
		failure   *Failure
	)
	if !rolledOut || !allServe {
		failure = gravest(observed)
	}

	available := condition(echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing,
		"%d of %d pods are available", pods.AvailableReplicas, wanted)
	switch {
	case !observed.HasService:
		available = condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "The Service is not in place")
	case pods.AvailableReplicas == 0:
		available = condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "No pod is available")
	}

	progressing := condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonRolledOut, "Every pod runs the newest spec")
	switch {
	case failure != nil && failure.Reason == echov1.ReasonProgressDeadlineExceeded:
		progressing = condition(echov1.ConditionProgressing, metav1.ConditionFalse, failure.Reason, "%s", failure.Message)
	case !rolledOut:
		progressing = condition(echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut,
			"%d of %d pods run the newest spec, %d are available", updatedPods(observed.Deployment), wanted, pods.AvailableReplicas)
	}

	degraded := condition(echov1.ConditionDegraded, metav1.ConditionFalse, echov1.ReasonAsExpected, "Nothing is wrong")
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

// isRolledOut tells whether every child is in place, the newest spec has served once, and
// no pod of an earlier spec is left.
func isRolledOut(observed Observation, wanted int32) bool {
	progressing := deploymentCondition(observed.Deployment, appsv1.DeploymentProgressing)
	return len(observed.Refused) == 0 && observed.HasService &&
		progressing != nil && progressing.Reason == newReplicaSetAvailable &&
		observed.Deployment.Status.UpdatedReplicas >= wanted &&
		observed.Deployment.Status.Replicas == observed.Deployment.Status.UpdatedReplicas
}

// newReplicaSetAvailable is the Deployment controller's reason for a rollout that is complete.
// Source: k8s.io/kubernetes/pkg/controller/deployment/util.
const newReplicaSetAvailable = "NewReplicaSetAvailable"

// seen tells whether the Deployment's status speaks of its newest spec.
func seen(deployment *appsv1.Deployment) bool {
	return deployment != nil && deployment.Status.ObservedGeneration >= deployment.Generation
}

// updatedPods returns how many pods run the newest spec; none before the Deployment
// controller has seen it.
func updatedPods(deployment *appsv1.Deployment) int32 {
	if !seen(deployment) {
		return 0
	}
	return deployment.Status.UpdatedReplicas
}

func gravest(observed Observation) *Failure {
	if len(observed.Refused) > 0 {
		return joined(observed.Refused)
	}
	if failure := podsRejected(observed.Deployment); failure != nil {
		return failure
	}
	if failure := ofPods(observed.Pods); failure != nil {
		return failure
	}
	return deadlineExceeded(observed.Deployment)
}

// joined keeps the gravest reason and every message, so that nothing is hidden.
func joined(failures []Failure) *Failure {
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

// deploymentCondition returns nil while the Deployment's status speaks of an earlier spec.
func deploymentCondition(deployment *appsv1.Deployment, conditionType appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	if !seen(deployment) {
		return nil
	}
	for i := range deployment.Status.Conditions {
		if c := &deployment.Status.Conditions[i]; c.Type == conditionType {
			return c
		}
	}
	return nil
}

// maxMessage is the most characters of a message; the API allows 32,768.
const maxMessage = 2048

func condition(conditionType string, status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type: conditionType, Status: status, Reason: reason,
		Message: Shortened(fmt.Sprintf(format, args...), maxMessage),
	}
}

// Shortened returns at most limit characters of the text on one line, the last an ellipsis
// where some are left out. Whatever does not print becomes a space: others wrote the text, a
// server the end of its log for one, and it is shown in terminals.
func Shortened(text string, limit int) string {
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

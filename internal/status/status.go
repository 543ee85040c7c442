// Package status computes the status of an Echo from its observed children and pods.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
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
	// Service as the API server last returned it. It is nil while the Echo controls none, or if it is
	// being deleted.
	Service *corev1.Service
	// Rejected has a failure for each child that could not be written, or that an external writer
	// changes repeatedly. The reasons are those in rejections.
	Rejected []Failure
	// Waiting has a message for each child that the operator will write without a change by the
	// user, for example after an object of the same name is deleted.
	Waiting []string
	// Overridden lists the children whose changes by admission the operator accepted.
	Overridden []echov1.OverriddenChild
	// Route is what was observed about the HTTPRoute. It is nil if the Echo neither wants one nor
	// still has one.
	Route *Route
	// Verification is what was observed about the verifier. It is nil if the Echo does not want one.
	Verification *Verification
	// Pods of the Echo, of all its ReplicaSets.
	Pods []corev1.Pod
	// NewestReplicaSet is the label pod-template-hash of the newest ReplicaSet. Failures of other
	// pods are not failures of the newest spec. It is empty if the newest ReplicaSet is unknown.
	NewestReplicaSet string
	// Now is the time of the observation.
	Now metav1.Time
}

// Of returns the status for an observation and for the Echo's previous status. Its conditions have
// no transition times.
func Of(echo *echov1.Echo, observed Observation) echov1.EchoStatus {
	var pods appsv1.DeploymentStatus
	if observed.Deployment != nil {
		pods = observed.Deployment.Status
	}
	if echo.DeletionTimestamp != nil {
		observed.Overridden = echo.Status.Overridden // The children of a terminating Echo are not compared.
	}
	status := echov1.EchoStatus{
		Preview:            preview(echo.Spec.Message),
		Ready:              fmt.Sprintf("%d/%d", pods.ReadyReplicas, echo.Spec.Replicas),
		Replicas:           pods.Replicas,
		ReadyReplicas:      pods.ReadyReplicas,
		AvailableReplicas:  pods.AvailableReplicas,
		Selector:           children.Selector(echo).String(),
		URL:                children.URL(echo),
		ExternalURL:        children.ExternalURL(echo),
		ObservedGeneration: echo.Generation,
		Overridden:         observed.Overridden,
	}
	for _, condition := range conditions(echo, observed, pods) {
		condition.ObservedGeneration = echo.Generation
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

// maxPreview is the maximum number of characters of the preview of a message.
const maxPreview = 40

// preview returns the first line of the message, shortened.
func preview(message string) string {
	message = strings.TrimSpace(message)
	message = message[:min(len(message), (maxPreview+1)*utf8.UTFMax)] // Longer than the preview, and cheap.
	if end := strings.IndexAny(message, "\n\v\f\r\u0085\u2028\u2029"); end >= 0 {
		message = message[:end] + "…"
	}
	return Truncate(message, maxPreview)
}

// conditions returns Ready, Available, Progressing, Degraded and Overridden, with a route or a
// verification also Routed and Verified, and while a failure lasts also Stalled.
func conditions(echo *echov1.Echo, observed Observation, pods appsv1.DeploymentStatus) []metav1.Condition {
	available := availableCondition(echo, observed, pods)
	var routed, verified, stalled *metav1.Condition
	if observed.Route != nil {
		routed = new(routedCondition(echo, observed))
	}
	if observed.Verification != nil {
		verified = new(verifiedCondition(echo, observed))
	}
	var all []metav1.Condition
	if echo.DeletionTimestamp != nil {
		message := "The Echo is being deleted"
		all = []metav1.Condition{
			condition(echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonTerminating, "%s", message),
			available,
			condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonTerminating, "%s", message),
			degradedCondition(nil),
		}
	} else {
		failure := failureOf(echo, observed, routed, verified)
		progressing := progressingCondition(echo, observed, failure)
		if waitsInVain := verified != nil && verified.Reason == echov1.ReasonRollingOut && progressing.Reason == echov1.ReasonProgressDeadlineExceeded; waitsInVain {
			verified.Reason = progressing.Reason
		}
		ready := readyCondition(echo, observed, failure, progressing, available, routed, verified)
		all = []metav1.Condition{ready, available, progressing, degradedCondition(failure)}
		stalled = stalledCondition(failure, progressing)
	}
	all = append(all, overriddenCondition(observed.Overridden))
	for _, optional := range []*metav1.Condition{routed, verified, stalled} {
		if optional != nil {
			all = append(all, *optional)
		}
	}
	return all
}

// failureOf returns why the Echo is not Ready until somebody acts, or nil.
func failureOf(echo *echov1.Echo, observed Observation, routed, verified *metav1.Condition) *Failure {
	failure := routeFailure(echo, observed, routed)
	if !serves(echo, observed) {
		failure = mostSevere(echo, observed)
	}
	if failure != nil || !IsRolledOut(echo, observed) {
		return failure
	}
	return verificationFailure(verified)
}

func degradedCondition(failure *Failure) metav1.Condition {
	if failure == nil {
		return condition(echov1.ConditionDegraded, metav1.ConditionFalse, echov1.ReasonAsExpected, "No failure observed")
	}
	return condition(echov1.ConditionDegraded, metav1.ConditionTrue, failure.Reason, "%s", failure.Message)
}

// stalledCondition returns Stalled while a failure lasts, or nil. kstatus reads Stalled; it does not know Degraded. A
// failure during a rollout may still pass: if it does not, Progressing becomes False at the deadline.
func stalledCondition(failure *Failure, progressing metav1.Condition) *metav1.Condition {
	if failure == nil || progressing.Status == metav1.ConditionTrue {
		return nil
	}
	return new(condition(echov1.ConditionStalled, metav1.ConditionTrue, failure.Reason, "%s", failure.Message))
}

func progressingCondition(echo *echov1.Echo, observed Observation, failure *Failure) metav1.Condition {
	switch {
	case failure != nil && !isUpdated(echo, observed) && rolloutIsOverdue(echo, observed):
		return condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonProgressDeadlineExceeded, "%s", failure.Message)
	case !IsRolledOut(echo, observed):
		return condition(echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut, "%s", progress(echo, observed))
	default:
		return condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonRolledOut, "Every pod runs the newest spec")
	}
}

// readyCondition returns the summary of the failure and of the other conditions: the first that is not as it should be.
func readyCondition(
	echo *echov1.Echo, observed Observation, failure *Failure, progressing, available metav1.Condition, routed, verified *metav1.Condition,
) metav1.Condition {
	notReady := func(reason, message string) metav1.Condition {
		return condition(echov1.ConditionReady, metav1.ConditionFalse, reason, "%s", message)
	}
	isUnrouted := routed != nil && routed.Status != metav1.ConditionTrue
	isUnverified := verified != nil && verified.Status != metav1.ConditionTrue && !wasReady(echo)
	switch {
	case failure != nil:
		return notReady(failure.Reason, failure.Message)
	case !IsRolledOut(echo, observed):
		return notReady(progressing.Reason, progressing.Message)
	case !allAvailable(echo, observed.Deployment):
		return notReady(echov1.ReasonPodsNotReady, available.Message)
	case isUnrouted:
		return notReady(routed.Reason, routed.Message)
	case isUnverified:
		return notReady(verified.Reason, verified.Message)
	default:
		return condition(echov1.ConditionReady, metav1.ConditionTrue, echov1.ReasonReady, "Every pod serves the newest spec")
	}
}

func availableCondition(echo *echov1.Echo, observed Observation, pods appsv1.DeploymentStatus) metav1.Condition {
	switch {
	case observed.Service == nil:
		return condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "The Echo has no Service")
	case pods.AvailableReplicas == 0:
		return condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "No pod is available")
	default:
		return condition(echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing,
			"%d of %d pods are available", pods.AvailableReplicas, echo.Spec.Replicas)
	}
}

func overriddenCondition(overridden []echov1.OverriddenChild) metav1.Condition {
	if len(overridden) == 0 {
		return condition(echov1.ConditionOverridden, metav1.ConditionFalse, echov1.ReasonAsExpected, "No child was changed by admission")
	}
	messages := make([]string, len(overridden))
	for i, child := range overridden {
		messages[i] = fmt.Sprintf("%s: an admission policy or webhook changed %s", child.Kind, strings.Join(child.Fields, ", "))
	}
	return condition(echov1.ConditionOverridden, metav1.ConditionTrue, echov1.ReasonChangedByAdmission, "%s", strings.Join(messages, "; "))
}

// mostSevere returns the most severe failure of an Echo that does not serve its newest spec.
func mostSevere(echo *echov1.Echo, observed Observation) *Failure {
	if len(observed.Rejected) > 0 {
		return join(observed.Rejected)
	}
	if failure := podsRejected(observed.Deployment); failure != nil && !makesRoom(echo, observed) {
		return failure
	}
	if failure := failureOfPods(echo, observed); failure != nil {
		return failure
	}
	return overdue(echo, observed)
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

func podsRejected(deployment *appsv1.Deployment) *Failure {
	if c := deploymentCondition(deployment, appsv1.DeploymentReplicaFailure); c != nil && c.Status == corev1.ConditionTrue {
		return &Failure{Reason: echov1.ReasonPodsRejected, Message: c.Message}
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

// Package status computes the status of an Echo from its observed children and pods.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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
	// ExternalURL is the URL of the Echo outside the cluster, if it is known.
	ExternalURL string
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

// verdict is what one subject adds to the status. It is empty for a subject that the Echo does not have.
type verdict struct {
	condition metav1.Condition
	// failure is nil unless the subject fails until a user or the cluster acts.
	failure *Failure
	// until is when the verdict may be another one although no object changes, or zero.
	until time.Time
}

// Status returns the next status, and after which time it may be outdated although no object has changed, or 0.
func (a *Assessment) Status() (echov1.EchoStatus, time.Duration) {
	echo := a.echo
	if echo.DeletionTimestamp != nil {
		a.Overridden = echo.Status.Overridden // The children of a terminating Echo are not compared.
	}
	conditions, until := a.conditions()
	status := echov1.EchoStatus{
		Preview:            preview(echo.Spec.Message),
		Ready:              fmt.Sprintf("%d/%d", a.pods.ReadyReplicas, echo.Spec.Replicas),
		Replicas:           a.pods.Replicas,
		ReadyReplicas:      a.pods.ReadyReplicas,
		AvailableReplicas:  a.pods.AvailableReplicas,
		Selector:           children.Selector(echo).String(),
		URL:                children.URL(echo),
		ExternalURL:        a.ExternalURL,
		ObservedGeneration: echo.Generation,
		Overridden:         a.Overridden,
		Conditions:         conditions,
	}
	for i := range status.Conditions {
		a.setTransitionTime(&status.Conditions[i])
	}
	if echo.DeletionTimestamp != nil || until.IsZero() {
		return status, 0
	}
	return status, until.Sub(a.Now.Time)
}

// setTransitionTime completes a condition. What a newer generation waits for starts when that is observed. A new Echo
// that is not Ready has been so since its creation.
func (a *Assessment) setTransitionTime(c *metav1.Condition) {
	c.ObservedGeneration = a.echo.Generation
	before := meta.FindStatusCondition(a.echo.Status.Conditions, c.Type)
	isRollingOut := c.Type == echov1.ConditionProgressing && c.Status == metav1.ConditionTrue
	waits := isRollingOut || c.Status == metav1.ConditionUnknown
	isUnchanged := before != nil && before.Status == c.Status && (!waits || before.ObservedGeneration == c.ObservedGeneration)
	switch {
	case isUnchanged:
		c.LastTransitionTime = before.LastTransitionTime
	case len(a.echo.Status.Conditions) == 0 && c.Type == echov1.ConditionReady && c.Status == metav1.ConditionFalse:
		c.LastTransitionTime = a.echo.CreationTimestamp
	default:
		c.LastTransitionTime = a.Now
	}
}

// conditions returns Ready, Available, Progressing, Degraded and Overridden, with a route or a
// verification also Routed and Verified, and while a failure lasts also Stalled. It also returns when they may change.
func (a *Assessment) conditions() ([]metav1.Condition, time.Time) {
	available, overridden := a.availableCondition(), overriddenCondition(a.Overridden)
	rollout, route := a.rollout(), a.route()
	verification := a.verification(rollout.condition)

	failure := rollout.failure
	if a.serves() {
		failure = route.failure
	}
	if failure == nil && a.isRolledOut {
		failure = verification.failure
	}
	progressing := rollout.condition
	ready := a.ready(failure, progressing, available, route.condition, verification.condition)
	if a.echo.DeletionTimestamp != nil {
		failure = nil
		ready = condition(echov1.ConditionReady, metav1.ConditionFalse, echov1.ReasonTerminating, "The Echo is being deleted")
		progressing = condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonTerminating, "The Echo is being deleted")
	}
	all := []metav1.Condition{ready, available, progressing, degraded(failure), overridden}
	stalled, stalledAt := a.stalled(failure, progressing)
	for _, optional := range []metav1.Condition{route.condition, verification.condition, stalled} {
		if optional.Type != "" {
			all = append(all, optional)
		}
	}
	return all, a.next(rollout.until, route.until, verification.until, stalledAt)
}

func degraded(failure *Failure) metav1.Condition {
	if failure == nil {
		return condition(echov1.ConditionDegraded, metav1.ConditionFalse, echov1.ReasonAsExpected, "No failure observed")
	}
	return condition(echov1.ConditionDegraded, metav1.ConditionTrue, failure.Reason, "%s", failure.Message)
}

// stallTime is how long what may end by itself lasts before it is Stalled: a Deployment's default progress deadline.
const stallTime = 600 * time.Second

// waits are the reasons of failures that may end by themselves: a node comes, an image is pulled, a server or a Gateway
// is slow.
var waits = []string{
	echov1.ReasonUnschedulable, echov1.ReasonImagePullFailed, echov1.ReasonProgressDeadlineExceeded, echov1.ReasonPodsNotReady,
	echov1.ReasonRouteNotCreated, echov1.ReasonRouteNotFound, echov1.ReasonRouteNotReconciled, echov1.ReasonVerificationFailed,
}

// stalled returns Stalled while a failure lasts that a change of the spec or of the cluster has to end, and when another
// one counts as such. kstatus reads Stalled; it does not know Degraded. A failure during a rollout may still pass: if it
// does not, Progressing becomes False at the deadline.
func (a *Assessment) stalled(failure *Failure, progressing metav1.Condition) (metav1.Condition, time.Time) {
	if failure == nil || progressing.Status == metav1.ConditionTrue {
		return metav1.Condition{}, time.Time{}
	}
	since := a.Now.Time
	if before := a.previous(echov1.ConditionDegraded); before.Status == metav1.ConditionTrue {
		since = before.LastTransitionTime.Time
	}
	if at := since.Add(stallTime); slices.Contains(waits, failure.Reason) && !a.expired(at) {
		return metav1.Condition{}, at
	}
	return condition(echov1.ConditionStalled, metav1.ConditionTrue, failure.Reason, "%s", failure.Message), time.Time{}
}

// ready returns the summary of the failure and of the other conditions: the first that is not as it should be.
func (a *Assessment) ready(failure *Failure, progressing, available, routed, verified metav1.Condition) metav1.Condition {
	notReady := func(reason, message string) metav1.Condition {
		return condition(echov1.ConditionReady, metav1.ConditionFalse, reason, "%s", message)
	}
	wasReady := a.previous(echov1.ConditionReady).Status == metav1.ConditionTrue
	isUnrouted := routed.Type != "" && routed.Status != metav1.ConditionTrue
	isUnverified := verified.Type != "" && verified.Status != metav1.ConditionTrue && !wasReady
	switch {
	case failure != nil:
		return notReady(failure.Reason, failure.Message)
	case !a.isRolledOut:
		return notReady(progressing.Reason, progressing.Message)
	case !a.isAvailable:
		return notReady(echov1.ReasonPodsNotReady, available.Message)
	case isUnrouted:
		return notReady(routed.Reason, routed.Message)
	case isUnverified:
		return notReady(verified.Reason, verified.Message)
	default:
		return condition(echov1.ConditionReady, metav1.ConditionTrue, echov1.ReasonReady, "Every pod serves the newest spec")
	}
}

func (a *Assessment) availableCondition() metav1.Condition {
	switch {
	case a.Service == nil:
		return condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "The Echo has no Service")
	case a.pods.AvailableReplicas == 0:
		return condition(echov1.ConditionAvailable, metav1.ConditionFalse, echov1.ReasonNotServing, "No pod is available")
	default:
		return condition(echov1.ConditionAvailable, metav1.ConditionTrue, echov1.ReasonServing,
			"%d of %d pods are available", a.pods.AvailableReplicas, a.echo.Spec.Replicas)
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

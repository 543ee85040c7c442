package status

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// deadline is how long the operator waits for the next progress of anything: the server, the verifier, what their
// controllers create, and the route. Then the status names the cause.
//
// The start is always the time of an object, so a restart of the operator does not start it again:
//
//	a rollout                           Progressing of the Echo, the last pod that became ready
//	pods that were lost later           Available of the Deployment
//	a verifier                          Verified of the Echo, the end of the rollout, the start of its container
//	a route                             Routed of the Echo
const deadline = 120 * time.Second

// clockSkew is the difference between the clocks of the operator and of the cluster that the status allows for.
const clockSkew = 15 * time.Second

// newReplicaSetAvailable is the Deployment controller's reason for a completed rollout.
// Source: k8s.io/kubernetes/pkg/controller/deployment/util.
const newReplicaSetAvailable = "NewReplicaSetAvailable"

// Assessment holds the facts about the servers of an Echo from which its status follows.
type Assessment struct {
	Observation
	echo *echov1.Echo

	// pods are the counts of the Deployment, or zero without one.
	pods appsv1.DeploymentStatus
	// isCurrent is true if the status of the Deployment describes its newest spec. While it is false, progressing,
	// available and replicaFailure are empty.
	isCurrent                              bool
	progressing, available, replicaFailure appsv1.DeploymentCondition

	// isAvailable is true if as many pods as the Echo declares run the newest spec and are available.
	isAvailable bool
	// IsUpdated is true if every child is written, no pod of an earlier spec is left that is not being deleted, and
	// every pod was available at least once in this generation of the Echo.
	IsUpdated bool
	// earlierPods is the number of pods of earlier specs that may serve clients until earlierPodsEnd.
	earlierPods    int
	earlierPodsEnd time.Time
	// isRolledOut is true if IsUpdated, and clients reach no pod of an earlier spec.
	isRolledOut bool

	// rolloutStart is when the rollout in flight started, and rolloutDeadline is when it is overdue.
	rolloutStart, rolloutDeadline time.Time
	// isOverdue is true if the rollout has made no progress for too long. It remains overdue until the Echo serves:
	// what is late may become ready repeatedly.
	isOverdue bool
}

// Assess assesses an observation of an Echo with its previous status.
func Assess(echo *echov1.Echo, observed Observation) *Assessment {
	a := &Assessment{Observation: observed, echo: echo}
	if observed.Deployment != nil {
		a.pods = observed.Deployment.Status
		a.isCurrent = isCurrent(observed.Deployment)
		a.progressing = deploymentCondition(observed.Deployment, appsv1.DeploymentProgressing)
		a.available = deploymentCondition(observed.Deployment, appsv1.DeploymentAvailable)
		a.replicaFailure = deploymentCondition(observed.Deployment, appsv1.DeploymentReplicaFailure)
	}
	isWritten := len(observed.Rejected)+len(observed.Waiting) == 0 && observed.Service != nil
	isComplete := a.progressing.Reason == newReplicaSetAvailable && a.pods.Replicas == a.pods.UpdatedReplicas
	a.isAvailable = a.pods.UpdatedReplicas >= echo.Spec.Replicas && a.pods.AvailableReplicas >= echo.Spec.Replicas
	a.IsUpdated = isWritten && isComplete && (a.isAvailable || a.previous(echov1.ConditionProgressing).Reason == echov1.ReasonRolledOut)
	a.findEarlierPods()
	a.isRolledOut = a.IsUpdated && a.earlierPods == 0
	a.findRolloutDeadline()
	return a
}

// NeedsNewestReplicaSet reports whether the status depends on which ReplicaSet is the newest: a pod
// fails, or is overdue, while the Echo does not serve its newest spec.
func (a *Assessment) NeedsNewestReplicaSet() bool {
	if a.echo.DeletionTimestamp != nil || !a.isCurrent || a.serves() {
		return false
	}
	fails := slices.ContainsFunc(a.Pods, func(pod corev1.Pod) bool { return PodFailure(&pod, a.Now) != nil })
	return fails || a.isLate()
}

// WaitsForRoom reports whether a quota rejects pods of a rollout, and pods of an earlier spec make room for them.
func (a *Assessment) WaitsForRoom() bool {
	return a.replicaFailure.Status == corev1.ConditionTrue && a.makesRoom()
}

// serves reports whether every pod runs the newest spec and is available. Pods of an earlier spec may still stop.
func (a *Assessment) serves() bool { return a.IsUpdated && a.isAvailable }

// expired reports whether the time has come.
func (a *Assessment) expired(at time.Time) bool { return !a.Now.Time.Before(at) }

// next returns the earliest of the times that have not come, or a zero time.
func (a *Assessment) next(times ...time.Time) (next time.Time) {
	for _, at := range times {
		if !a.expired(at) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// previous returns a condition of the status that the Echo has if it describes this generation, or an empty condition.
func (a *Assessment) previous(conditionType string) metav1.Condition {
	c := meta.FindStatusCondition(a.echo.Status.Conditions, conditionType)
	if c == nil || c.ObservedGeneration != a.echo.Generation {
		return metav1.Condition{}
	}
	return *c
}

// unknownSince returns since when a condition of the Echo is Unknown for this generation.
func (a *Assessment) unknownSince(conditionType string) time.Time {
	if before := a.previous(conditionType); before.Status == metav1.ConditionUnknown {
		return before.LastTransitionTime.Time
	}
	return a.Now.Time
}

// findEarlierPods counts the pods of earlier specs that serve clients: a pod serves until it has stopped, because nodes
// and Gateways learn late that its endpoint is gone. If all pods stop at once, they are counted only if their response is
// another one.
func (a *Assessment) findEarlierPods() {
	if a.Deployment == nil {
		return
	}
	newest := a.Deployment.Spec.Template.Labels[children.ResponseLabel]
	hasOldResponse := func(pod *corev1.Pod) bool {
		response := pod.Labels[children.ResponseLabel]
		return response != "" && response != newest // A pod that the operator did not declare has none.
	}
	count := func(pods int, until time.Time) {
		if pods > 0 && !a.expired(until) {
			a.earlierPods += pods
			a.earlierPodsEnd = latest(a.earlierPodsEnd, until)
		}
	}
	old, running, hashes := 0, 0, map[string]bool{}
	for i := range a.Pods {
		switch pod := &a.Pods[i]; {
		case isFinished(pod) || hashOf(pod) == "":
		case hasOldResponse(pod):
			old++
		default:
			running++
			hashes[hashOf(pod)] = true
		}
	}
	if len(hashes) > 1 { // An external writer has changed the template for a while.
		old += max(0, running-int(a.pods.Replicas))
	}
	count(old, a.progressing.LastUpdateTime.Add(deadline)) // The cache lacks the deletions that completed the rollout.
	for i := range a.Pods {
		pod := &a.Pods[i]
		hasOldTemplate := len(hashes) > 0 && !hashes[hashOf(pod)]
		if pod.DeletionTimestamp != nil && (hasOldTemplate || hasOldResponse(pod)) {
			count(1, servesUntil(pod))
		}
	}
}

// servesUntil returns how long a pod that is being deleted may serve: its grace period, which admission may have changed.
// After that, the server has stopped, or its node is lost.
func servesUntil(pod *corev1.Pod) time.Time { return pod.DeletionTimestamp.Add(clockSkew) }

// findRolloutDeadline finds the time at which the rollout is overdue. A pod that becomes ready is progress. One that is
// ready repeatedly is none, so the time is over after one deadline for each replica in any case. The Deployment
// controller also counts a pod that replaces one that the kubelet has rejected.
//
//	start                 a pod is ready         another one
//	|--------- 80 s ---------|------- 100 s -------|--------------- 120 s ---------------| overdue
func (a *Assessment) findRolloutDeadline() {
	a.rolloutStart = a.Now.Time
	before := a.previous(echov1.ConditionProgressing)
	if before.Reason == echov1.ReasonRollingOut {
		a.rolloutStart = before.LastTransitionTime.Time
	}
	progress := latest(a.rolloutStart, lastReady(a.Pods)).Add(deadline)
	limit := a.rolloutStart.Add(time.Duration(a.echo.Spec.Replicas) * deadline)
	a.rolloutDeadline = slices.MinFunc([]time.Time{progress, limit}, time.Time.Compare)
	wasOverdue := before.Reason == echov1.ReasonProgressDeadlineExceeded
	hasTimedOut := a.progressing.Status == corev1.ConditionFalse
	a.isOverdue = wasOverdue || hasTimedOut || a.expired(a.rolloutDeadline)
}

// unavailableSince returns since when a Deployment whose rollout was complete lacks an available pod.
func (a *Assessment) unavailableSince() time.Time {
	if a.available.Status != "" && a.available.Status != corev1.ConditionTrue {
		return a.available.LastTransitionTime.Time
	}
	if c := meta.FindStatusCondition(a.echo.Status.Conditions, echov1.ConditionReady); c != nil && c.Status != metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return a.Now.Time
}

// countLag is how long the Deployment controller may take to count the first pod of a rollout.
const countLag = 10 * time.Second

// makesRoom reports whether the rollout replaces pods of an earlier spec. What a quota or the nodes have no room for
// yet gets the room of those.
func (a *Assessment) makesRoom() bool {
	mayHaveStarted := a.pods.UpdatedReplicas > 0 || !a.expired(a.rolloutStart.Add(countLag))
	return a.isCurrent && !a.isOverdue && mayHaveStarted && a.pods.Replicas > a.pods.UpdatedReplicas
}

// isCurrent reports whether the status of the Deployment describes its newest spec.
func isCurrent(deployment *appsv1.Deployment) bool {
	return deployment.Status.ObservedGeneration >= deployment.Generation
}

// deploymentCondition returns a condition of a Deployment whose status is current, or an empty condition.
func deploymentCondition(deployment *appsv1.Deployment, conditionType appsv1.DeploymentConditionType) appsv1.DeploymentCondition {
	return find(deployment.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == conditionType && isCurrent(deployment)
	})
}

// find returns the first item that matches, or an empty one.
func find[T any](items []T, matches func(T) bool) (found T) {
	if i := slices.IndexFunc(items, matches); i >= 0 {
		found = items[i]
	}
	return found
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

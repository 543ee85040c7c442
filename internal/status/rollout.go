package status

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// newReplicaSetAvailable is the Deployment controller's reason for a completed rollout.
// Source: k8s.io/kubernetes/pkg/controller/deployment/util.
const newReplicaSetAvailable = "NewReplicaSetAvailable"

// RolloutInFlight reports whether the status describes a rollout that is expected to complete
// without a change by the user. A failed rollout is not in flight: it may wait indefinitely.
func RolloutInFlight(status echov1.EchoStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionProgressing) &&
		!meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionDegraded)
}

// Recheck returns the number of seconds after which the status, which was computed from the
// observation, may be outdated although no object has changed, or 0 if it remains accurate.
func Recheck(echo *echov1.Echo, observed Observation, status echov1.EchoStatus) (shortest int64) {
	if echo.DeletionTimestamp != nil {
		return 0
	}
	for _, seconds := range []int64{
		rolloutRecheck(echo, observed, status), routeRecheck(echo, observed, status), verificationRecheck(echo, observed, status),
	} {
		if seconds > 0 && (shortest == 0 || seconds < shortest) {
			shortest = seconds
		}
	}
	return shortest
}

func rolloutRecheck(echo *echov1.Echo, observed Observation, status echov1.EchoStatus) int64 {
	_, stopped := stopping(observed)
	degraded := meta.FindStatusCondition(status.Conditions, echov1.ConditionDegraded)
	hasFailed := degraded != nil && degraded.Status == metav1.ConditionTrue
	isCrashing := hasFailed && degraded.Reason == echov1.ReasonCrashLooping
	isRollingOut := meta.IsStatusConditionTrue(status.Conditions, echov1.ConditionProgressing)
	hasLostPods := isUpdated(echo, observed) && !allAvailable(echo, observed.Deployment)
	switch {
	case isRollingOut && isUpdated(echo, observed):
		return stopped
	case isRollingOut:
		return max(1, rolloutDeadline(echo, observed)-observed.Now.Unix())
	case isCrashing:
		return crashWindowLeft(observed)
	case hasLostPods && !hasFailed:
		return observed.left(unavailableSince(echo, observed))
	default:
		return 0
	}
}

// serves reports whether every pod runs the newest spec and is available, and no pod of an
// earlier spec is left.
func serves(echo *echov1.Echo, observed Observation) bool {
	return isUpdated(echo, observed) && allAvailable(echo, observed.Deployment)
}

// stopping returns how many pods of earlier specs still serve clients, and after how many seconds to look again.
// Such a pod serves until it has stopped, because nodes and Gateways learn late that its endpoint is gone.
func stopping(observed Observation) (pods int, seconds int64) {
	newest := map[string]bool{}
	for i := range observed.Pods {
		if pod := &observed.Pods[i]; !isFinished(pod) {
			newest[pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]] = true
		}
	}
	if len(newest) == 0 {
		return 0, 0
	}
	if c := deploymentCondition(observed.Deployment, appsv1.DeploymentProgressing); len(newest) > 1 && c != nil && c.Reason == newReplicaSetAvailable {
		if left := c.LastUpdateTime.Unix() + deletionLag - observed.Now.Unix(); left > 0 {
			return len(newest) - 1, left // The cache does not have the deletion of the last pods yet.
		}
	}
	for i := range observed.Pods {
		pod := &observed.Pods[i]
		if pod.DeletionTimestamp == nil || newest[pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]] {
			continue
		}
		// After this time, the kubelet has killed it, or its node is lost. Only a pod that the operator did not declare
		// has more time.
		if left := pod.DeletionTimestamp.Unix() - observed.Now.Unix(); left > 0 && left <= children.GracePeriodSeconds {
			pods, seconds = pods+1, max(seconds, left)
		}
	}
	return pods, seconds
}

// deletionLag is the number of seconds after which the cache has the deletions that completed a rollout.
const deletionLag int64 = 3

// IsRolledOut reports whether every child is written, every pod was available at least once in this generation
// of the Echo, and clients reach no pod of an earlier spec any more.
func IsRolledOut(echo *echov1.Echo, observed Observation) bool {
	pods, _ := stopping(observed)
	return isUpdated(echo, observed) && pods == 0
}

// isUpdated reports whether every child is written, no pod of an earlier spec is left that is not being deleted, and
// every pod was available at least once in this generation of the Echo.
func isUpdated(echo *echov1.Echo, observed Observation) bool {
	progressing := deploymentCondition(observed.Deployment, appsv1.DeploymentProgressing)
	return len(observed.Rejected)+len(observed.Waiting) == 0 && observed.Service != nil &&
		progressing != nil && progressing.Reason == newReplicaSetAvailable &&
		observed.Deployment.Status.Replicas == observed.Deployment.Status.UpdatedReplicas &&
		(allAvailable(echo, observed.Deployment) || previousProgressing(echo, metav1.ConditionFalse, echov1.ReasonRolledOut) != nil)
}

func allAvailable(echo *echov1.Echo, deployment *appsv1.Deployment) bool {
	desired := echo.Spec.Replicas
	return deployment.Status.UpdatedReplicas >= desired && deployment.Status.AvailableReplicas >= desired
}

// progress describes a rollout that has not completed.
func progress(echo *echov1.Echo, observed Observation) string {
	if len(observed.Waiting) > 0 {
		return strings.Join(observed.Waiting, "; ")
	}
	var updated, available int32
	if observed.Deployment != nil {
		available = observed.Deployment.Status.AvailableReplicas
	}
	if isCurrent(observed.Deployment) {
		updated = observed.Deployment.Status.UpdatedReplicas
	}
	message := fmt.Sprintf("%d of %d pods run the newest spec, %d are available", updated, echo.Spec.Replicas, available)
	if pods, _ := stopping(observed); pods > 0 && isUpdated(echo, observed) {
		message += fmt.Sprintf("; clients may still reach %d of an earlier spec until they have stopped", pods)
	}
	if failure := podsRejected(observed.Deployment); failure != nil {
		message += "; the others wait: " + failure.Message
	}
	return message
}

// makesRoom reports whether the rollout replaces pods of an earlier spec. What a quota or the nodes have no room for
// yet gets the room of those.
func makesRoom(echo *echov1.Echo, observed Observation) bool {
	if !isCurrent(observed.Deployment) || rolloutIsOverdue(echo, observed) {
		return false
	}
	pods := observed.Deployment.Status
	return pods.UpdatedReplicas > 0 && pods.Replicas > pods.UpdatedReplicas
}

// lastReady returns the time, in seconds, at which the last of the ready pods became ready, or 0.
func lastReady(pods []corev1.Pod) (last int64) {
	for i := range pods {
		if isFinished(&pods[i]) {
			continue
		}
		if c := podCondition(&pods[i], corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
			last = max(last, c.LastTransitionTime.Unix())
		}
	}
	return last
}

// previousProgressing returns the Echo's condition Progressing if it has the status and the reason
// for the current generation, or nil.
func previousProgressing(echo *echov1.Echo, status metav1.ConditionStatus, reason string) *metav1.Condition {
	c := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing)
	if c == nil || c.ObservedGeneration != echo.Generation || c.Status != status || c.Reason != reason {
		return nil
	}
	return c
}

// isCurrent reports whether the status of the Deployment describes its newest spec.
func isCurrent(deployment *appsv1.Deployment) bool {
	return deployment != nil && deployment.Status.ObservedGeneration >= deployment.Generation
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

// Package gitops tests what GitOps controllers read of an Echo, and the manifests of their recipes.
package gitops

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// now is the time of every observation, and long is a time in which every deadline passes.
var (
	now  = metav1.Unix(1_000_000, 0)
	long = metav1.Unix(now.Unix()-3600, 0)
)

const (
	generation = 7
	newest     = "abc"
)

// deployments are Deployments of two replicas in every state that the status distinguishes.
func deployments() []*appsv1.Deployment {
	deployment := func(updated, available int32, conditions ...appsv1.DeploymentCondition) *appsv1.Deployment {
		return &appsv1.Deployment{Status: appsv1.DeploymentStatus{
			Replicas: 2, UpdatedReplicas: updated, ReadyReplicas: available, AvailableReplicas: available, Conditions: conditions,
		}}
	}
	condition := func(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: long}
	}
	rollingOut := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated")
	completed := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "NewReplicaSetAvailable")
	unobserved := deployment(2, 2, completed)
	unobserved.Generation = 1
	return []*appsv1.Deployment{
		nil, unobserved, deployment(1, 1, rollingOut), deployment(2, 2, completed), deployment(2, 1, completed),
		deployment(2, 1, completed, condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable")),
		deployment(1, 1, rollingOut, condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate")),
		deployment(1, 1, condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")),
	}
}

// podLists are no pod, a failing pod, and a pod of an earlier spec that stops.
func podLists() [][]corev1.Pod {
	pod := func(replicaSet string, state corev1.ContainerState) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: replicaSet, Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: replicaSet}},
			Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "echo", State: state}}},
		}
	}
	failing := pod(newest, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not found"}})
	stopping := pod("old", corev1.ContainerState{})
	stopping.DeletionTimestamp = new(metav1.Unix(now.Unix()+10, 0))
	return [][]corev1.Pod{nil, {failing}, {pod(newest, corev1.ContainerState{}), stopping}}
}

// routes are no HTTPRoute, and one in every state that the status distinguishes.
func routes(spec *echov1.Route) []*status.Route {
	routed := func(accepted metav1.ConditionStatus) *status.Route {
		return &status.Route{Object: &gatewayv1.HTTPRoute{Status: gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{
			Parents: []gatewayv1.RouteParentStatus{{
				ParentRef: children.ParentRefs(spec)[0],
				Conditions: []metav1.Condition{
					{Type: string(gatewayv1.RouteConditionAccepted), Status: accepted, Reason: "NotAllowedByListeners"},
					{Type: string(gatewayv1.RouteConditionResolvedRefs), Status: metav1.ConditionTrue},
				},
			}},
		}}}}
	}
	return []*status.Route{
		nil, {NotInstalled: true}, {}, {Object: &gatewayv1.HTTPRoute{}}, routed(metav1.ConditionTrue), routed(metav1.ConditionFalse),
	}
}

// verifications are no verifier, and one in every state that the status distinguishes.
func verifications() []*status.Verification {
	verifier := func(ready int32) *appsv1.Deployment {
		template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{children.ResponseLabel: newest}}}
		return &appsv1.Deployment{
			Spec:   appsv1.DeploymentSpec{Template: template},
			Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: ready},
		}
	}
	failing := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "verify", Labels: map[string]string{children.ResponseLabel: newest}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "service", Started: new(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: long}},
		}}},
	}
	return []*status.Verification{
		nil, {NotAllowed: true}, {Outdated: true}, {}, {Deployment: verifier(1)}, {Deployment: verifier(0)},
		{Deployment: verifier(0), Pods: []corev1.Pod{failing}},
	}
}

// previous are the conditions that a reconciliation may find.
func previous() [][]metav1.Condition {
	condition := func(kind string, status metav1.ConditionStatus, reason string, observed int64, since metav1.Time) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, ObservedGeneration: observed, LastTransitionTime: since}
	}
	waitsSince := func(since metav1.Time) []metav1.Condition {
		return []metav1.Condition{
			condition(echov1.ConditionProgressing, metav1.ConditionTrue, echov1.ReasonRollingOut, generation, since),
			condition(echov1.ConditionRouted, metav1.ConditionUnknown, echov1.ReasonRouteNotReconciled, generation, since),
			condition(echov1.ConditionVerified, metav1.ConditionUnknown, echov1.ReasonVerifying, generation, since),
		}
	}
	readyWith := func(observed int64) []metav1.Condition {
		return []metav1.Condition{
			condition(echov1.ConditionProgressing, metav1.ConditionFalse, echov1.ReasonRolledOut, observed, long),
			condition(echov1.ConditionReady, metav1.ConditionTrue, echov1.ReasonReady, observed, long),
		}
	}
	return [][]metav1.Condition{nil, waitsSince(now), waitsSince(long), readyWith(generation), readyWith(generation - 1)}
}

// states returns an Echo with each combination of conditions that the operator computes, and one that no operator has
// reconciled.
func states() map[string]*echov1.Echo {
	services := []*corev1.Service{nil, {}}
	rejections := [][]status.Failure{nil, {{Reason: echov1.ReasonConflict, Message: "Service echo-hello exists"}}}
	deletions := []*metav1.Time{nil, &now}
	found := map[string]*echov1.Echo{"not reconciled": newEcho()}
	for i := 0; ; i++ {
		rest, echo := i, newEcho()
		echo.DeletionTimestamp = choose(&rest, deletions)
		echo.Status.Conditions = choose(&rest, previous())
		echo.Status, _ = status.Assess(echo, status.Observation{
			Deployment: choose(&rest, deployments()), Service: choose(&rest, services), Rejected: choose(&rest, rejections),
			Route: choose(&rest, routes(echo.Spec.Route)), Verification: choose(&rest, verifications()),
			Pods: choose(&rest, podLists()), NewestReplicaSet: newest, Now: now,
		}).Status()
		if rest > 0 {
			return found // Every combination was chosen.
		}
		name := fmt.Sprintf("deleting %t", echo.DeletionTimestamp != nil)
		for _, c := range echo.Status.Conditions {
			name += fmt.Sprintf(", %s=%s %s", c.Type, c.Status, c.Reason)
		}
		found[name] = echo
	}
}

// choose returns the item that the index chooses, and leaves what it does not use of the index for further choices.
func choose[T any](index *int, items []T) T {
	item := items[*index%len(items)]
	*index /= len(items)
	return item
}

func newEcho() *echov1.Echo {
	return &echov1.Echo{
		TypeMeta:   metav1.TypeMeta{APIVersion: echov1.GroupVersion.String(), Kind: "Echo"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "demo", Name: "hello", Generation: generation},
		Spec: echov1.EchoSpec{
			Message: "hi", Replicas: 2, Port: 80, TargetPort: 5678,
			Route:  &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "public"}}},
			Verify: &echov1.Verify{PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3},
		},
		Status: echov1.EchoStatus{ObservedGeneration: -1}, // The default.
	}
}

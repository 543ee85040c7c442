package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// The operator only reads pods. Their status contains the reason why a server does not start.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch

// podsByEcho is the name of the cache index of pods by the name of their Echo.
const podsByEcho = "echo"

func indexPods(ctx context.Context, mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, podsByEcho,
		func(pod client.Object) []string { return []string{pod.GetLabels()[children.EchoLabel]} })
	if err != nil {
		return fmt.Errorf("index pods by Echo: %w", err)
	}
	return nil
}

func (r *EchoReconciler) podsOf(ctx context.Context, echo *echov1.Echo) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingFields{podsByEcho: echo.Name})
	return pods.Items, err
}

func echoOfPod(_ context.Context, pod client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: pod.GetNamespace(),
		Name:      pod.GetLabels()[children.EchoLabel],
	}}}
}

// podFailureChanged passes only pod events that change the failure of the pod. All other changes
// of pods also change the status of their Deployment.
var podFailureChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return status.PodFailure(e.Object.(*corev1.Pod)) != nil },
	DeleteFunc: func(e event.DeleteEvent) bool { return status.PodFailure(e.Object.(*corev1.Pod)) != nil },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(status.PodFailure(e.ObjectOld.(*corev1.Pod)), status.PodFailure(e.ObjectNew.(*corev1.Pod)))
	},
}

// slimPod reduces the memory of a cached pod to the fields that the status and the watch need.
func slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slim := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pod.Namespace,
			Name:              pod.Name,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            map[string]string{children.EchoLabel: pod.Labels[children.EchoLabel]},
		},
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			slim.Status.Conditions = []corev1.PodCondition{c}
		}
	}
	slim.Status.InitContainerStatuses = slimContainers(pod.Status.InitContainerStatuses)
	slim.Status.ContainerStatuses = slimContainers(pod.Status.ContainerStatuses)
	return slim, nil
}

func slimContainers(containers []corev1.ContainerStatus) []corev1.ContainerStatus {
	var slim []corev1.ContainerStatus
	for _, c := range containers {
		slim = append(slim, corev1.ContainerStatus{
			Name:                 c.Name,
			Ready:                c.Ready,
			RestartCount:         c.RestartCount,
			State:                corev1.ContainerState{Waiting: c.State.Waiting},
			LastTerminationState: c.LastTerminationState,
		})
	}
	return slim
}

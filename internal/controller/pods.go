package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
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

// The operator only reads pods. Their status contains the reason why a server does not start. It
// lists ReplicaSets only while a pod fails.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=list

// The names of the cache indexes of pods, by the Echo that they serve or verify.
const (
	podsByEcho     = "echo"
	podsByVerified = "verified echo"
)

func indexPods(ctx context.Context, mgr ctrl.Manager) error {
	for index, label := range map[string]string{podsByEcho: children.EchoLabel, podsByVerified: children.VerifiesLabel} {
		err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Pod{}, index, func(pod client.Object) []string {
			if name := pod.GetLabels()[label]; name != "" {
				return []string{name}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index pods by Echo: %w", err)
		}
	}
	return nil
}

// observePods adds the pods of the Echo to the observation, and those of its verifier and the newest
// ReplicaSet if the status depends on them.
func (r *EchoReconciler) observePods(ctx context.Context, echo *echov1.Echo, observed *status.Observation) error {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingFields{podsByEcho: echo.Name})
	if err != nil {
		return err
	}
	observed.Pods, observed.Now = pods.Items, metav1.Now()
	if status.NeedsVerifierPods(*observed) {
		err := r.Client.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingFields{podsByVerified: echo.Name})
		if err != nil {
			return err
		}
		observed.Verification.Pods = pods.Items
	}
	if status.NeedsNewestReplicaSet(echo, *observed) {
		observed.NewestReplicaSet, err = r.newestReplicaSet(ctx, observed.Deployment)
	}
	return err
}

// replicaSetsPerPage bounds the memory of a list of ReplicaSets. An Echo usually has three at most.
const replicaSetsPerPage = 20

// newestReplicaSet returns the label pod-template-hash of the Deployment's ReplicaSet with the highest
// revision, or an empty string if there is none. It reads from the API server, because a cache of
// ReplicaSets would use memory for each Echo.
func (r *EchoReconciler) newestReplicaSet(ctx context.Context, deployment *appsv1.Deployment) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return "", err
	}
	var newest string
	var highest int64
	sets := &metav1.PartialObjectMetadataList{}
	sets.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSetList"))
	for {
		err := r.APIReader.List(ctx, sets, client.InNamespace(deployment.Namespace), client.Limit(replicaSetsPerPage),
			client.Continue(sets.Continue), client.MatchingLabelsSelector{Selector: selector})
		if err != nil {
			return "", err
		}
		for i := range sets.Items {
			revision, err := strconv.ParseInt(sets.Items[i].Annotations[revisionAnnotation], 10, 64)
			if err == nil && revision > highest && metav1.IsControlledBy(&sets.Items[i], deployment) {
				newest, highest = sets.Items[i].Labels[appsv1.DefaultDeploymentUniqueLabelKey], revision
			}
		}
		if sets.Continue == "" {
			return newest, nil
		}
	}
}

// revisionAnnotation is the annotation in which the Deployment controller numbers ReplicaSets.
// Source: k8s.io/kubernetes/pkg/controller/deployment/util.
const revisionAnnotation = "deployment.kubernetes.io/revision"

func echoOfPod(_ context.Context, pod client.Object) (requests []reconcile.Request) {
	for _, label := range []string{children.EchoLabel, children.VerifiesLabel} {
		if name := pod.GetLabels()[label]; name != "" {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}})
		}
	}
	return requests
}

// podFailureChanged passes only pod events that change the failure of the pod, or which containers of
// a verifier's pod fail, and the end of a server's pod, which Ready waits for. All other changes of pods also
// change the status of their Deployment or DaemonSet.
var podFailureChanged = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return fails(e.Object) },
	DeleteFunc: func(e event.DeleteEvent) bool {
		return e.Object.GetLabels()[children.EchoLabel] != "" || fails(e.Object)
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		failureBefore, containersBefore := podFailure(e.ObjectOld)
		failure, containers := podFailure(e.ObjectNew)
		return !equality.Semantic.DeepEqual(failureBefore, failure) || !slices.Equal(containersBefore, containers)
	},
}

func fails(pod client.Object) bool {
	failure, containers := podFailure(pod)
	return failure != nil || len(containers) > 0
}

// podFailure returns the failure of a pod and, for one of a verifier, the containers that fail.
func podFailure(object client.Object) (failure *status.Failure, containers []string) {
	pod := object.(*corev1.Pod)
	if pod.Labels[children.VerifiesLabel] != "" {
		containers = status.FailingContainers(pod)
	}
	return status.PodFailure(pod, metav1.Now()), containers
}

const (
	// maxContainers and maxPodMessage bound the memory of a cached pod. Permission to create pods
	// includes permission to give them the operator's labels.
	maxContainers = 16
	maxPodMessage = 2048
)

// slimPod reduces the memory of a cached pod to the fields that the status and the watch need.
func slimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	slim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace:       pod.Namespace,
		Name:            pod.Name,
		UID:             pod.UID,
		ResourceVersion: pod.ResourceVersion,
	}}
	labels := []string{children.EchoLabel, appsv1.DefaultDeploymentUniqueLabelKey}
	if pod.Labels[children.VerifiesLabel] != "" {
		labels = []string{children.VerifiesLabel, children.AnswerLabel}
		slim.Spec.NodeName = pod.Spec.NodeName
	} else if pod.Labels[children.EchoLabel] == "" {
		return slim, nil // No Echo has this pod.
	}
	slim.DeletionTimestamp = pod.DeletionTimestamp
	slim.Labels = map[string]string{}
	for _, label := range labels {
		slim.Labels[label] = pod.Labels[label]
	}
	slim.Status.Phase = pod.Status.Phase
	for _, c := range pod.Status.Conditions {
		isUnscheduled := c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		isReady := c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		switch {
		case isUnscheduled:
			slim.Status.Conditions = []corev1.PodCondition{{
				Type: c.Type, Status: c.Status, Reason: c.Reason, Message: status.Truncate(c.Message, maxPodMessage),
			}}
		case isReady:
			slim.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	slim.Status.InitContainerStatuses = slimContainers(pod.Status.InitContainerStatuses)
	slim.Status.ContainerStatuses = slimContainers(pod.Status.ContainerStatuses)
	return slim, nil
}

// slimContainers returns the first containers that are not ready, because a ready one has no failure.
func slimContainers(containers []corev1.ContainerStatus) []corev1.ContainerStatus {
	var slim []corev1.ContainerStatus
	for _, c := range containers {
		if c.Ready || len(slim) == maxContainers {
			continue
		}
		reduced := corev1.ContainerStatus{Name: c.Name, RestartCount: c.RestartCount, Started: c.Started}
		if waiting := c.State.Waiting; waiting != nil {
			reduced.State.Waiting = &corev1.ContainerStateWaiting{
				Reason: waiting.Reason, Message: status.Truncate(waiting.Message, maxPodMessage),
			}
		}
		if running := c.State.Running; running != nil {
			reduced.State.Running = &corev1.ContainerStateRunning{StartedAt: running.StartedAt}
		}
		if end := c.LastTerminationState.Terminated; end != nil {
			reduced.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: end.ExitCode, Reason: end.Reason, FinishedAt: end.FinishedAt,
				Message: status.Truncate(end.Message, maxPodMessage),
			}
		}
		slim = append(slim, reduced)
	}
	return slim
}

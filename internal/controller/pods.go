package controller

import (
	"context"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// The operator only reads pods. Their status contains the reason why a server does not start. It
// lists ReplicaSets only while a pod fails.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=list

// observePods adds the pods of the Echo to the observation, and those of its verifier and the newest
// ReplicaSet if the status depends on them.
func (r *EchoReconciler) observePods(ctx context.Context, echo *echov1.Echo, observed *status.Observation) error {
	var pods corev1.PodList
	err := r.Client.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingFields{informers.PodsByEcho: echo.Name})
	if err != nil {
		return err
	}
	observed.Pods, observed.Now = pods.Items, metav1.Now()
	if status.NeedsVerifierPods(*observed) {
		err := r.Client.List(ctx, &pods, client.InNamespace(echo.Namespace), client.MatchingFields{informers.PodsByVerified: echo.Name})
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

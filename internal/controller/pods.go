package controller

import (
	"context"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/informers"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// The operator only reads pods. Their status contains the reason why a server does not start. It
// lists ReplicaSets only while a pod fails.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=list

// observePods adds the pods of the Echo to the observation, and those of its verifier and the newest
// ReplicaSet if the status depends on them.
func (rec *reconciliation) observePods(ctx context.Context) (err error) {
	rec.observed.Now = metav1.Now()
	if rec.observed.Pods, err = rec.podsBy(ctx, informers.PodsByEcho); err != nil {
		return err
	}
	if status.NeedsVerifierPods(rec.observed) {
		if rec.observed.Verification.Pods, err = rec.podsBy(ctx, informers.PodsByVerified); err != nil {
			return err
		}
	}
	if status.NeedsNewestReplicaSet(rec.echo, rec.observed) {
		rec.observed.NewestReplicaSet, err = rec.newestReplicaSet(ctx, rec.observed.Deployment)
	}
	return err
}

func (rec *reconciliation) podsBy(ctx context.Context, index string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := rec.Client.List(ctx, &pods, client.InNamespace(rec.echo.Namespace), client.MatchingFields{index: rec.echo.Name})
	return pods.Items, err
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

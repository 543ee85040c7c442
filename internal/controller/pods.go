package controller

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// The operator only reads pods. Their status contains the reason why a server does not start. It
// lists ReplicaSets only while a pod fails.
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=list

// observePods adds the pods of the Echo to the observation, and those of its verifier if the status depends on them.
func (rec *reconciliation) observePods(ctx context.Context) (err error) {
	rec.observed.Now = metav1.Now()
	if rec.observed.Pods, err = rec.podsBy(ctx, children.EchoLabel); err != nil {
		return err
	}
	if status.NeedsVerifierPods(rec.observed) {
		if rec.observed.Verification.Pods, err = rec.podsBy(ctx, children.VerifiesLabel); err != nil {
			return err
		}
	}
	return nil
}

// roomPeriod is how often the operator has pods created for which a quota had no room.
const roomPeriod = 2 * time.Second

// retryPods has the ReplicaSet controller create the pods again for which a quota had no room. By itself, it backs off
// for minutes, although pods of an earlier spec make room meanwhile. It reconciles a ReplicaSet whose annotations
// change, and the Deployment controller copies those of the Deployment.
func (rec *reconciliation) retryPods(ctx context.Context) {
	now := time.Now()
	if next := rec.memory.podsRetried.Add(roomPeriod); now.Before(next) {
		rec.requeue(next.Sub(now))
		return
	}
	rec.memory.podsRetried = now
	rec.requeue(roomPeriod)
	deployment := rec.observed.Deployment.DeepCopy()
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"annotations":{%q:%q}}}`,
		deployment.ResourceVersion, children.RetryAnnotation, now.UTC().Format(time.RFC3339))
	if err := rec.Client.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		log.FromContext(ctx).Info("Could not retry the pods that a quota rejected", "error", status.Truncate(err.Error(), maxNote))
		return
	}
	rec.versions.Record("Deployment", deployment)
}

func (rec *reconciliation) podsBy(ctx context.Context, label string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := rec.Client.List(ctx, &pods, client.InNamespace(rec.echo.Namespace), client.MatchingFields{label: rec.echo.Name})
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

package explore

import (
	"encoding/json"
	"fmt"
	"hash/crc32"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// hashOf identifies a template of pods.
func hashOf(template corev1.PodTemplateSpec) string {
	text, err := json.Marshal(template)
	if err != nil {
		panic(err) // The type can be encoded.
	}
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE(text))
}

func templateOf(pod *corev1.Pod) string { return pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] }

// podsOf returns the pods of a Deployment or DaemonSet, also those that stop.
func (w *world) podsOf(workload metav1.Object) (pods []*corev1.Pod) {
	for _, k := range sorted(w.objects, "Pod") {
		if pod, _ := get[*corev1.Pod](w, k); metav1.IsControlledBy(pod, workload) {
			pods = append(pods, pod)
		}
	}
	return pods
}

func isReady(pod *corev1.Pod) bool {
	return len(pod.Status.Conditions) > 0 && pod.Status.Conditions[0].Status == corev1.ConditionTrue
}

// clusterSteps are the next steps of the controllers and of the kubelet. Of several pods or of several objects without an
// owner that can do the same, the first does it, because the order makes no difference.
func (w *world) clusterSteps() (steps []transition) {
	done := map[string]bool{}
	add := func(once, name string, do func(*world)) {
		if mayDoNothing := once == ""; mayDoNothing {
			after := w.clone()
			if do(after); after.version == w.version {
				return
			}
		} else if done[once] {
			return
		}
		done[once] = true
		steps = append(steps, transition{name, do})
	}
	for _, k := range sorted(w.objects, "") {
		switch object := w.objects[k].Object.(type) {
		case *appsv1.Deployment:
			add("", "the Deployment controller syncs "+k.name, func(w *world) { w.syncDeployment(object) })
		case *appsv1.DaemonSet:
			add("", "the DaemonSet controller syncs "+k.name, func(w *world) { w.syncDaemonSet(object) })
		case *gatewayv1.HTTPRoute:
			if k.name != shop {
				add("", "the Gateway accepts the route", func(w *world) { w.accept(object) })
			}
		case *corev1.Pod:
			if object.DeletionTimestamp != nil {
				add("stops", "pod "+k.name+" stops", func(w *world) { w.remove(k) })
			} else if !isReady(object) {
				add("starts", "pod "+k.name+" becomes ready", func(w *world) { w.start(object) })
			}
		}
		if w.isGarbage(k) {
			add("garbage", "the garbage collector deletes "+k.String(), func(w *world) { w.collect(k) })
		}
	}
	return steps
}

func (w *world) start(pod *corev1.Pod) {
	ready := pod.DeepCopy()
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.time())}}
	w.update(ready)
}

func (w *world) stop(pod *corev1.Pod) {
	stopping := pod.DeepCopy()
	stopping.DeletionTimestamp = &metav1.Time{Time: w.time().Add(gracePeriod)}
	w.store(stopping)
}

func (w *world) isGarbage(k key) bool {
	owner := metav1.GetControllerOf(w.objects[k])
	if owner == nil {
		return false
	}
	found := w.objects[key{owner.Kind, owner.Name}]
	stops := k.kind == "Pod" && w.objects[k].GetDeletionTimestamp() != nil
	return !stops && (found == nil || found.GetUID() != owner.UID)
}

func (w *world) collect(k key) {
	if pod, is := w.objects[k].Object.(*corev1.Pod); is {
		w.stop(pod)
		return
	}
	w.remove(k)
}

// syncDeployment creates and deletes pods, and writes the status, as the controllers of Deployments and ReplicaSets do.
func (w *world) syncDeployment(deployment *appsv1.Deployment) {
	hash, replicas := hashOf(deployment.Spec.Template), int(*deployment.Spec.Replicas)
	var updated, old []*corev1.Pod
	available := 0
	for _, pod := range w.podsOf(deployment) {
		switch {
		case pod.DeletionTimestamp != nil:
			continue
		case templateOf(pod) == hash:
			updated = append(updated, pod)
		default:
			old = append(old, pod)
		}
		if isReady(pod) {
			available++
		}
	}
	surplus := max(0, len(updated)-replicas)
	removable := max(0, available-replicas-surplus)
	for _, pod := range old { // Pods that are not available go first, in any number.
		if !isReady(pod) || removable > 0 {
			if isReady(pod) {
				removable--
			}
			w.stop(pod)
		}
	}
	for _, pod := range updated[:surplus] {
		w.stop(pod)
	}
	for range replicas - len(updated) {
		w.createPod(deployment, "Deployment", deployment.Spec.Template)
	}
	w.syncStatus(deployment, hash)
}

func (w *world) createPod(owner metav1.Object, kind string, template corev1.PodTemplateSpec) {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy()}
	for i := 1; pod.Name == "" || w.objects[keyOf(pod)] != nil; i++ {
		pod.Name = fmt.Sprintf("%s-%d", owner.GetName(), i)
	}
	pod.Labels = labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: hashOf(template)})
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	w.create(pod)
}

// syncDaemonSet is syncDeployment for a DaemonSet on one node.
func (w *world) syncDaemonSet(daemons *appsv1.DaemonSet) {
	pods := w.podsOf(daemons)
	if len(pods) == 0 {
		w.createPod(daemons, "DaemonSet", daemons.Spec.Template)
		return
	}
	status := appsv1.DaemonSetStatus{ObservedGeneration: daemons.Generation, DesiredNumberScheduled: 1, NumberUnavailable: 1}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if templateOf(pod) != hashOf(daemons.Spec.Template) {
			w.stop(pod)
			return
		}
		status.CurrentNumberScheduled, status.UpdatedNumberScheduled = 1, 1
		if isReady(pod) {
			status.NumberReady, status.NumberAvailable, status.NumberUnavailable = 1, 1, 0
		}
	}
	synced := daemons.DeepCopy()
	synced.Status = status
	w.update(synced)
}

// syncStatus writes the status without the condition Available, which the operator reads only long after a rollout.
func (w *world) syncStatus(deployment *appsv1.Deployment, hash string) {
	status := appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation}
	for _, pod := range w.podsOf(deployment) {
		if pod.DeletionTimestamp != nil {
			continue
		}
		status.Replicas++
		if templateOf(pod) == hash {
			status.UpdatedReplicas++
		}
		if isReady(pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
	}
	replicas, before := *deployment.Spec.Replicas, appsv1.DeploymentCondition{}
	if len(deployment.Status.Conditions) > 0 {
		before = deployment.Status.Conditions[0]
	}
	progressing := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated", LastUpdateTime: metav1.NewTime(w.time()),
	}
	isComplete := status.UpdatedReplicas == replicas && status.Replicas == replicas && status.AvailableReplicas == replicas
	wasComplete := before.Reason == "NewReplicaSetAvailable"
	if isComplete || wasComplete && status.Replicas == status.UpdatedReplicas {
		progressing.Reason = "NewReplicaSetAvailable"
	}
	if progressing.Reason == before.Reason {
		progressing = before
	}
	status.Conditions = []appsv1.DeploymentCondition{progressing}
	synced := deployment.DeepCopy()
	synced.Status = status
	w.update(synced)
}

func (w *world) accept(route *gatewayv1.HTTPRoute) {
	accepted := route.DeepCopy()
	controlplane.SetRouteStatus(accepted, metav1.NewTime(w.time()))
	w.update(accepted)
}

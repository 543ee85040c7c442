package explore

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/informers"
)

// podIndex returns the value of a pod in an index of the cache.
func podIndex(pod *corev1.Pod, index string) string {
	return pod.Labels[map[string]string{informers.PodsByEcho: children.EchoLabel, informers.PodsByVerified: children.VerifiesLabel}[index]]
}

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
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// replicaSets returns one for each template of the pods, as the operator lists them.
func (w *world) replicaSets(selector labels.Selector) (sets []metav1.PartialObjectMetadata) {
	for _, k := range sorted(w.objects, "Deployment") {
		deployment, _ := get[*appsv1.Deployment](w, k)
		if !selector.Matches(labels.Set(deployment.Spec.Template.Labels)) {
			continue
		}
		set := metav1.PartialObjectMetadata{}
		set.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hashOf(deployment.Spec.Template)}
		set.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
		set.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))}
		sets = append(sets, set)
	}
	return sets
}

// clusterSteps are the next steps of the controllers and of the kubelet. Of several pods that can do the same, the first
// does it, because the order makes no difference.
func (w *world) clusterSteps() (steps []transition) {
	for _, k := range sorted(w.objects, "Deployment") {
		if after := w.clone(); after.syncDeployment(k) {
			steps = append(steps, transition{"the Deployment controller syncs " + k.name, func(w *world) { w.syncDeployment(k) }})
		}
	}
	for _, k := range sorted(w.objects, "DaemonSet") {
		if after := w.clone(); after.syncDaemonSet(k) {
			steps = append(steps, transition{"the DaemonSet controller syncs " + k.name, func(w *world) { w.syncDaemonSet(k) }})
		}
	}
	var starts, stops bool
	for _, k := range sorted(w.objects, "Pod") {
		pod, _ := get[*corev1.Pod](w, k)
		switch {
		case pod.DeletionTimestamp != nil && !stops:
			stops = true
			steps = append(steps, transition{"pod " + k.name + " stops", func(w *world) { w.remove(k) }})
		case pod.DeletionTimestamp == nil && !isReady(pod) && !starts:
			starts = true
			steps = append(steps, transition{"pod " + k.name + " becomes ready", func(w *world) { w.start(k) }})
		}
	}
	for _, k := range sorted(w.objects, "") {
		if w.isGarbage(k) {
			steps = append(steps, transition{"the garbage collector deletes " + k.String(), func(w *world) { w.collect(k) }})
			break
		}
	}
	if route, found := get[*gatewayv1.HTTPRoute](w, key{"HTTPRoute", "echo-" + echoName}); found && !isAccepted(route) {
		steps = append(steps, transition{"the Gateway accepts the route", func(w *world) { w.accept(route) }})
	}
	return steps
}

func (w *world) start(k key) {
	pod := copyOf(w.objects[k].Object).(*corev1.Pod) //nolint:forcetypeassert // The key has the kind.
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.time())}}
	w.update(pod)
}

func (w *world) stop(pod *corev1.Pod) {
	stopping := pod.DeepCopy()
	stopping.DeletionTimestamp = &metav1.Time{Time: w.time().Add(gracePeriod)}
	stopping.DeletionGracePeriodSeconds = new(int64(gracePeriod.Seconds()))
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

// syncDeployment creates and deletes pods, and writes the status, as the controllers of Deployments and ReplicaSets do. It
// reports whether there was something to do.
func (w *world) syncDeployment(k key) (changed bool) {
	deployment := copyOf(w.objects[k].Object).(*appsv1.Deployment) //nolint:forcetypeassert // The key has the kind.
	spec, hash := &deployment.Spec, hashOf(deployment.Spec.Template)
	replicas := int(*spec.Replicas)
	var updated, old []*corev1.Pod
	stopping, available := 0, 0
	for _, pod := range w.podsOf(deployment) {
		switch {
		case pod.DeletionTimestamp != nil:
			stopping++
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
	removable := min(len(old), max(0, available-replicas-surplus))
	missing := max(0, replicas-len(updated))
	if spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		removable = len(old)
		if removable+stopping > 0 {
			missing = 0
		}
	}
	for _, pod := range old { // Pods that are not available go first, in any number.
		if !isReady(pod) || removable > 0 {
			if isReady(pod) {
				removable--
			}
			w.stop(pod)
			changed = true
		}
	}
	for _, pod := range updated[:surplus] {
		w.stop(pod)
		changed = true
	}
	for range missing {
		w.createPod(deployment, "Deployment", spec.Template)
		changed = true
	}
	return w.syncStatus(deployment, hash) || changed
}

func (w *world) createPod(owner metav1.Object, kind string, template corev1.PodTemplateSpec) {
	pod := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy()}
	for i := 1; ; i++ {
		pod.Name = fmt.Sprintf("%s-%d", owner.GetName(), i)
		if w.objects[keyOf(pod)] == nil {
			break
		}
	}
	pod.Labels = labels.Merge(pod.Labels, labels.Set{appsv1.DefaultDeploymentUniqueLabelKey: hashOf(template)})
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}
	if err := w.create(pod); err != nil {
		panic(err) // The name is free.
	}
}

// syncDaemonSet is syncDeployment for a DaemonSet on one node.
func (w *world) syncDaemonSet(k key) (changed bool) {
	daemons := copyOf(w.objects[k].Object).(*appsv1.DaemonSet) //nolint:forcetypeassert // The key has the kind.
	status := appsv1.DaemonSetStatus{ObservedGeneration: daemons.Generation, DesiredNumberScheduled: 1}
	pods := w.podsOf(daemons)
	if len(pods) == 0 {
		w.createPod(daemons, k.kind, daemons.Spec.Template)
		return true
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		if templateOf(pod) != hashOf(daemons.Spec.Template) {
			w.stop(pod)
			return true
		}
		status.CurrentNumberScheduled, status.UpdatedNumberScheduled = 1, 1
		if isReady(pod) {
			status.NumberReady, status.NumberAvailable = 1, 1
		}
	}
	status.NumberUnavailable = 1 - status.NumberAvailable
	if reflect.DeepEqual(daemons.Status, status) {
		return false
	}
	daemons.Status = status
	w.update(daemons)
	return true
}

func (w *world) syncStatus(deployment *appsv1.Deployment, hash string) bool {
	before, status := deployment.Status, appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation}
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
	replicas := *deployment.Spec.Replicas
	progressing := appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated"}
	available := appsv1.DeploymentCondition{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionFalse, Reason: "MinimumReplicasUnavailable"}
	isComplete := status.UpdatedReplicas == replicas && status.Replicas == replicas && status.AvailableReplicas == replicas
	wasComplete := slices.ContainsFunc(before.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Reason == "NewReplicaSetAvailable" })
	if isComplete || wasComplete && status.Replicas == status.UpdatedReplicas {
		progressing.Reason = "NewReplicaSetAvailable"
	}
	if status.AvailableReplicas >= replicas {
		available.Status, available.Reason = corev1.ConditionTrue, "MinimumReplicasAvailable"
	}
	for _, c := range []appsv1.DeploymentCondition{progressing, available} {
		c.LastUpdateTime, c.LastTransitionTime = metav1.NewTime(w.time()), metav1.NewTime(w.time())
		for _, earlier := range before.Conditions {
			if earlier.Type == c.Type && earlier.Status == c.Status {
				c.LastTransitionTime = earlier.LastTransitionTime
				if earlier.Reason == c.Reason {
					c.LastUpdateTime = earlier.LastUpdateTime
				}
			}
		}
		status.Conditions = append(status.Conditions, c)
	}
	if reflect.DeepEqual(before, status) {
		return false
	}
	deployment.Status = status
	w.update(deployment)
	return true
}

func isAccepted(route *gatewayv1.HTTPRoute) bool {
	parents := route.Status.Parents
	return len(parents) > 0 && parents[0].Conditions[0].ObservedGeneration == route.Generation
}

func (w *world) accept(route *gatewayv1.HTTPRoute) {
	accepted := route.DeepCopy()
	accepted.Status.Parents = nil
	for _, ref := range route.Spec.ParentRefs {
		parent := gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: "example.com/gateway"}
		for _, conditionType := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
			parent.Conditions = append(parent.Conditions, metav1.Condition{
				Type: string(conditionType), Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: route.Generation,
				LastTransitionTime: metav1.NewTime(w.time()),
			})
		}
		accepted.Status.Parents = append(accepted.Status.Parents, parent)
	}
	w.update(accepted)
}

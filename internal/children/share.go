package children

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// typical is what Deployments of Echoes have in common.
var typical = func() *appsv1.Deployment {
	deployment := &appsv1.Deployment{}
	Deployment(deployment, &echov1.Echo{Spec: echov1.EchoSpec{Replicas: 1, TargetPort: 5678}}, "")
	return deployment
}()

// Share saves memory where many Deployments are kept: parts that are the same in nearly every
// one, or twice in this one, are kept once. It must not be changed in place afterwards.
func Share(deployment *appsv1.Deployment) {
	spec := &deployment.Spec
	share(&spec.Template.Labels, deployment.Labels)
	share(&spec.Strategy, typical.Spec.Strategy)
	pod, typicalPod := &spec.Template.Spec, &typical.Spec.Template.Spec
	share(&pod.SecurityContext, typicalPod.SecurityContext)
	share(&pod.Volumes, typicalPod.Volumes)
	for i := range pod.TopologySpreadConstraints {
		share(&pod.TopologySpreadConstraints[i].LabelSelector, spec.Selector)
		share(&pod.TopologySpreadConstraints[i].MatchLabelKeys, typicalPod.TopologySpreadConstraints[0].MatchLabelKeys)
	}
	for i := range pod.Containers {
		container, typicalContainer := &pod.Containers[i], &typicalPod.Containers[0]
		share(&container.Ports, typicalContainer.Ports)
		share(&container.Resources, typicalContainer.Resources)
		share(&container.VolumeMounts, typicalContainer.VolumeMounts)
		share(&container.Lifecycle, typicalContainer.Lifecycle)
		share(&container.SecurityContext, typicalContainer.SecurityContext)
		share(&container.ReadinessProbe, typicalContainer.ReadinessProbe)
		share(&container.LivenessProbe, typicalContainer.LivenessProbe)
	}
}

// share puts what is known in the place of what is equal to it.
func share[T any](kept *T, known T) {
	if equality.Semantic.DeepEqual(*kept, known) {
		*kept = known
	}
}

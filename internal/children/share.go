package children

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// common is the Deployment of an Echo with default settings.
var common = func() *appsv1.Deployment {
	deployment := &appsv1.Deployment{}
	Deployment(deployment, &echov1.Echo{Spec: echov1.EchoSpec{Replicas: 1, TargetPort: 5678}}, "")
	return deployment
}()

// Share saves memory in a cache of many Deployments. Values that are equal in most Deployments,
// or that occur twice in this one, share memory. The Deployment must not be changed afterwards.
func Share(deployment *appsv1.Deployment) {
	spec := &deployment.Spec
	share(&spec.Template.Labels, deployment.Labels)
	share(&spec.Strategy, common.Spec.Strategy)
	pod, commonPod := &spec.Template.Spec, &common.Spec.Template.Spec
	share(&pod.SecurityContext, commonPod.SecurityContext)
	share(&pod.Volumes, commonPod.Volumes)
	share(&pod.NodeSelector, commonPod.NodeSelector)
	share(&pod.Affinity, commonPod.Affinity)
	for i := range pod.TopologySpreadConstraints {
		share(&pod.TopologySpreadConstraints[i].LabelSelector, spec.Selector)
		share(&pod.TopologySpreadConstraints[i].MatchLabelKeys, commonPod.TopologySpreadConstraints[0].MatchLabelKeys)
	}
	for i := range pod.Containers {
		container, commonContainer := &pod.Containers[i], &commonPod.Containers[0]
		share(&container.Ports, commonContainer.Ports)
		share(&container.Resources, commonContainer.Resources)
		share(&container.VolumeMounts, commonContainer.VolumeMounts)
		share(&container.Lifecycle, commonContainer.Lifecycle)
		share(&container.SecurityContext, commonContainer.SecurityContext)
		share(&container.ReadinessProbe, commonContainer.ReadinessProbe)
		share(&container.LivenessProbe, commonContainer.LivenessProbe)
	}
}

// share replaces *value with shared if the two are equal.
func share[T any](value *T, shared T) {
	if equality.Semantic.DeepEqual(*value, shared) {
		*value = shared
	}
}

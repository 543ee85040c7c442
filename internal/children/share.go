package children

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// common is the Deployment of an Echo with default settings.
var common = func() *appsv1.Deployment {
	deployment := &appsv1.Deployment{}
	Deployment(deployment, &echov1.Echo{Spec: echov1.EchoSpec{Replicas: 1, TargetPort: 5678}}, "")
	return deployment
}()

// constants has the texts in the metadata of every child.
var constants = func() map[string]string {
	texts := map[string]string{}
	add := func(text string) { texts[text] = text }
	for key, value := range common.Labels {
		add(key)
		if value != "" {
			add(value)
		}
	}
	add(generationAnnotation)
	add(common.OwnerReferences[0].APIVersion)
	add(common.OwnerReferences[0].Kind)
	return texts
}()

// ShareMeta saves memory in a cache of many children: texts in the metadata that all children have
// share memory.
func ShareMeta(object metav1.Object) {
	shareTexts(object.GetLabels())
	shareTexts(object.GetAnnotations())
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].APIVersion, owners[i].Kind = constant(owners[i].APIVersion), constant(owners[i].Kind)
	}
}

// shareTexts replaces keys and values. A new map would be one more allocation for each event.
func shareTexts(texts map[string]string) {
	for key, shared := range constants {
		if value, found := texts[key]; found {
			delete(texts, key) // An assignment would keep the key.
			texts[shared] = constant(value)
		}
	}
}

func constant(text string) string {
	if shared, found := constants[text]; found {
		return shared
	}
	return text
}

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

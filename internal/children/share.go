package children

import (
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// The children of an Echo with default settings: its Deployment, and its verifier with every layer.
var common, commonVerifier = func() (*appsv1.Deployment, *appsv1.Deployment) {
	echo := &echov1.Echo{Spec: echov1.EchoSpec{
		Replicas: 1, TargetPort: 5678,
		Route:  &echov1.Route{ParentRefs: []echov1.ParentRef{{}}, Hostnames: []string{"a"}, Paths: []echov1.Path{{}}},
		Verify: &echov1.Verify{PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3},
	}}
	server, verifier := &appsv1.Deployment{}, &appsv1.Deployment{}
	Deployment(server, echo, "")
	VerifierDeployment(verifier, echo, Inputs{})
	return server, verifier
}()

// ShareMeta saves memory in a cache of many children: texts in the metadata that several of them have share memory.
func ShareMeta(object metav1.Object) {
	object.SetLabels(shareTexts(object.GetLabels()))
	object.SetAnnotations(shareTexts(object.GetAnnotations()))
	owners := object.GetOwnerReferences()
	for i := range owners {
		owners[i].APIVersion, owners[i].Kind = shareText(owners[i].APIVersion), shareText(owners[i].Kind)
	}
}

func shareTexts(texts map[string]string) map[string]string {
	if texts == nil {
		return nil
	}
	shared := make(map[string]string, len(texts))
	for key, value := range texts {
		shared[shareText(key)] = shareText(value)
	}
	return shared
}

func shareText(text string) string { return unique.Make(text).Value() }

// Share saves memory in a cache of many Deployments and DaemonSets. Values that are equal in most of them,
// or that occur twice in this one, share memory. The object must not be changed afterwards.
func Share(object Object) {
	switch o := object.(type) {
	case *appsv1.Deployment:
		share(&o.Spec.Strategy, common.Spec.Strategy)
		shareTemplate(&o.Spec.Template, o.Labels, o.Spec.Selector)
	case *appsv1.DaemonSet:
		shareTemplate(&o.Spec.Template, o.Labels, o.Spec.Selector)
	}
}

func shareTemplate(template *corev1.PodTemplateSpec, labels map[string]string, selector *metav1.LabelSelector) {
	share(&template.Labels, labels)
	pod, commonPod := &template.Spec, &common.Spec.Template.Spec
	if template.Labels[VerifiesLabel] != "" {
		commonPod = &commonVerifier.Spec.Template.Spec
	}
	share(&pod.SecurityContext, commonPod.SecurityContext)
	share(&pod.NodeSelector, commonPod.NodeSelector)
	share(&pod.Affinity, commonPod.Affinity)
	for i := range pod.TopologySpreadConstraints {
		share(&pod.TopologySpreadConstraints[i].LabelSelector, selector)
		share(&pod.TopologySpreadConstraints[i].MatchLabelKeys, common.Spec.Template.Spec.TopologySpreadConstraints[0].MatchLabelKeys)
	}
	for i := range pod.Containers {
		container, commonContainer := &pod.Containers[i], &commonPod.Containers[0]
		for j := range commonPod.Containers {
			if commonPod.Containers[j].Name == container.Name {
				commonContainer = &commonPod.Containers[j]
			}
		}
		share(&container.Ports, commonContainer.Ports)
		share(&container.Resources, commonContainer.Resources)
		share(&container.Lifecycle, commonContainer.Lifecycle)
		share(&container.SecurityContext, commonContainer.SecurityContext)
		share(&container.StartupProbe, commonContainer.StartupProbe)
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

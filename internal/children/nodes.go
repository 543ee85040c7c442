package children

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// architectures are those that the operator's images are built for.
var architectures = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
	Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64", "arm64"},
}}}}}

// mutateNodes restricts the pods to nodes that can run their image: Linux for every image and, unless another client
// requires certain nodes, the architectures of the operator's images.
func mutateNodes(pod *corev1.PodSpec, isOperatorsImage bool) {
	pod.NodeSelector = labels.Merge(pod.NodeSelector, labels.Set{corev1.LabelOSStable: string(corev1.Linux)})
	if isOperatorsImage {
		required := &ensure(&ensure(&pod.Affinity).NodeAffinity).RequiredDuringSchedulingIgnoredDuringExecution
		if *required == nil {
			*required = architectures.DeepCopy()
		}
		return
	}
	nodes := ptr.Deref(ptr.Deref(pod.Affinity, corev1.Affinity{}).NodeAffinity, corev1.NodeAffinity{})
	if equality.Semantic.DeepEqual(nodes.RequiredDuringSchedulingIgnoredDuringExecution, architectures) {
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		dropEmpty(&pod.Affinity.NodeAffinity)
		dropEmpty(&pod.Affinity)
	}
}

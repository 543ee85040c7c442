package children

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
)

// architectures are those that the operator's images are built for.
var architectures = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
	Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64", "arm64"},
}}}}}

// mutateNodes restricts the pods to nodes that can run their image: Linux for every image and, unless another client
// requires certain nodes, the architectures of the operator's images.
func mutateNodes(pod *corev1.PodSpec, isOperatorsImage bool) {
	pod.NodeSelector = labels.Merge(pod.NodeSelector, labels.Set{corev1.LabelOSStable: string(corev1.Linux)})
	required := &ensure(&ensure(&pod.Affinity).NodeAffinity).RequiredDuringSchedulingIgnoredDuringExecution
	switch isOurs := equality.Semantic.DeepEqual(*required, architectures); {
	case isOperatorsImage && *required == nil:
		*required = architectures.DeepCopy()
	case !isOperatorsImage && isOurs:
		*required = nil
	}
	dropEmpty(&pod.Affinity.NodeAffinity)
	dropEmpty(&pod.Affinity)
}

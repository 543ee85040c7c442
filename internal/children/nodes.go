package children

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// mutateNodes restricts the pods to nodes that can run the image: Linux for every image, and the
// architectures that the default image is built for.
func mutateNodes(pod *corev1.PodSpec, echo *echov1.Echo) {
	requireLinux(pod)
	if echo.Spec.Image == "" {
		requireArchitecture(pod)
	} else {
		removeArchitecture(pod)
	}
}

func requireLinux(pod *corev1.PodSpec) {
	pod.NodeSelector = labels.Merge(pod.NodeSelector, labels.Set{corev1.LabelOSStable: string(corev1.Linux)})
}

func architecture() corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{
		Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64", "arm64"},
	}
}

func isArchitecture(expression corev1.NodeSelectorRequirement) bool {
	return equality.Semantic.DeepEqual(expression, architecture())
}

// requireArchitecture adds the expression to every term. A node has to match only one of the terms.
func requireArchitecture(pod *corev1.PodSpec) {
	nodes := ensure(&ensure(&ensure(&pod.Affinity).NodeAffinity).RequiredDuringSchedulingIgnoredDuringExecution)
	if len(nodes.NodeSelectorTerms) == 0 {
		nodes.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range nodes.NodeSelectorTerms {
		term := &nodes.NodeSelectorTerms[i]
		if !hasArchitecture(*term) {
			others := withoutCopies(term.MatchExpressions, func(e corev1.NodeSelectorRequirement) string { return e.Key })
			term.MatchExpressions = append(others, architecture())
		}
	}
}

// removeArchitecture removes the expression from every term, and the structs that it leaves empty.
func removeArchitecture(pod *corev1.PodSpec) {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil {
		return
	}
	affinity := pod.Affinity.NodeAffinity
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || !slices.ContainsFunc(required.NodeSelectorTerms, hasArchitecture) {
		return
	}
	var terms []corev1.NodeSelectorTerm
	for _, term := range required.NodeSelectorTerms {
		had := hasArchitecture(term)
		term.MatchExpressions = slices.DeleteFunc(term.MatchExpressions, isArchitecture)
		if isEmptied := had && len(term.MatchExpressions)+len(term.MatchFields) == 0; !isEmptied {
			terms = append(terms, term)
		}
	}
	required.NodeSelectorTerms = terms
	dropEmpty(&affinity.RequiredDuringSchedulingIgnoredDuringExecution)
	dropEmpty(&pod.Affinity.NodeAffinity)
	dropEmpty(&pod.Affinity)
}

func hasArchitecture(term corev1.NodeSelectorTerm) bool {
	return slices.ContainsFunc(term.MatchExpressions, isArchitecture)
}

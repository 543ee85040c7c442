package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestArchitectureIsRequiredForTheDefaultImageOnly(t *testing.T) {
	required := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
	expressions := func(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: all}
	}
	gpu := corev1.NodeSelectorRequirement{Key: "gpu", Operator: corev1.NodeSelectorOpDoesNotExist}
	arm := corev1.NodeSelectorRequirement{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}}
	byName := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}
	byNameToo := *byName.DeepCopy()
	byNameToo.MatchExpressions = []corev1.NodeSelectorRequirement{architecture()}
	preferred := required()
	preferred.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
	preferred.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: expressions(gpu)}}
	both := preferred.DeepCopy()
	both.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution =
		required(expressions(architecture())).NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	away := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	awayToo := required(expressions(architecture()))
	awayToo.PodAntiAffinity = away.PodAntiAffinity

	for name, c := range map[string]struct{ without, with *corev1.Affinity }{
		"no affinity":            {nil, required(expressions(architecture()))},
		"one term":               {required(expressions(gpu)), required(expressions(gpu, architecture()))},
		"two terms":              {required(expressions(gpu), byName), required(expressions(gpu, architecture()), byNameToo)},
		"stricter architectures": {required(expressions(arm)), required(expressions(arm, architecture()))},
		"preferred nodes":        {preferred, both},
		"pod anti-affinity":      {away, awayToo},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.PodSpec{Affinity: c.without.DeepCopy(), NodeSelector: map[string]string{"pool": "a"}}
			for range 2 {
				mutateNodes(pod, newEcho())
				equal(t, pod.Affinity, c.with)
			}
			for range 2 {
				mutateNodes(pod, newEcho(ownServer))
				equal(t, pod.Affinity, c.without)
			}
			equal(t, pod.NodeSelector, map[string]string{"pool": "a", "kubernetes.io/os": "linux"})
		})
	}
}

package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestArchitectureIsRequiredForTheDefaultImageOnly(t *testing.T) {
	gpu := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "gpu", Operator: corev1.NodeSelectorOpExists}}}
	preferred := []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: gpu}}
	others := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{gpu}}
	away := &corev1.PodAntiAffinity{}
	for name, c := range map[string]struct{ without, with *corev1.Affinity }{
		"no affinity":    {nil, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: architectures}}},
		"empty affinity": {&corev1.Affinity{}, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: architectures}}},
		"nodes that another client requires": {
			&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: others}},
			&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: others}},
		},
		"preferred nodes": {
			&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}},
			&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: preferred, RequiredDuringSchedulingIgnoredDuringExecution: architectures,
			}},
		},
		"pod anti-affinity": {
			&corev1.Affinity{PodAntiAffinity: away},
			&corev1.Affinity{PodAntiAffinity: away, NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: architectures}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.PodSpec{Affinity: c.without.DeepCopy(), NodeSelector: map[string]string{"pool": "a"}}
			mutateNodes(pod, false)
			equal(t, pod.Affinity, c.without)
			for range 2 {
				mutateNodes(pod, true)
				equal(t, pod.Affinity, c.with)
			}
			for range 2 {
				mutateNodes(pod, false)
				if name == "empty affinity" { // It is removed with the last requirement.
					c.without = nil
				}
				equal(t, pod.Affinity, c.without)
			}
			equal(t, pod.NodeSelector, map[string]string{"pool": "a", "kubernetes.io/os": "linux"})
		})
	}
}

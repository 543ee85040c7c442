package random

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// pod returns no settings in a third of the cases.
func (s source) pod() *echov1.PodSettings {
	if s.Intn(3) == 0 {
		return nil
	}
	settings := &echov1.PodSettings{
		NodeSelector:      map[string]echov1.LabelValue{},
		PriorityClassName: s.of("", "low", "system-cluster-critical", "a.b", strings.Repeat("p", 253)),
		Labels:            map[string]echov1.LabelValue{},
		Annotations:       map[string]echov1.AnnotationValue{},
	}
	for range s.Intn(4) {
		settings.NodeSelector[s.key()] = s.labelValue()
		settings.Labels[s.key()] = s.labelValue()
		settings.Annotations[s.key()] = echov1.AnnotationValue(s.text(1000))
		settings.Tolerations = append(settings.Tolerations, s.toleration())
	}
	if s.Intn(4) == 0 {
		settings.NodeSelector[corev1.LabelOSStable] = "linux"
	}
	for _, name := range []string{"b", "mirror", "a", strings.Repeat("s", 253)} {
		if s.Intn(3) == 0 {
			settings.ImagePullSecrets = append(settings.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
		}
	}
	return settings
}

// key returns a key that other settings are likely to have, too.
func (s source) key() string {
	return s.of("a", "b", "c", "d", "http", "tmp", "example.com/a", strings.Repeat("p", 253)+"/"+strings.Repeat("k", 63))
}

func (s source) labelValue() echov1.LabelValue {
	return echov1.LabelValue(s.of("", "a", "b", "true", "1.2_3-4", strings.Repeat("v", 63)))
}

// toleration returns a toleration that the API accepts. Its key is sometimes invalid for a pod.
func (s source) toleration() corev1.Toleration {
	toleration := corev1.Toleration{
		Operator: corev1.TolerationOperator(s.of("", "Equal", "Exists", "Exists")),
		Effect:   corev1.TaintEffect(s.of("", "NoSchedule", "PreferNoSchedule", "NoExecute", "NoExecute")),
	}
	exists := toleration.Operator == corev1.TolerationOpExists
	if !exists {
		toleration.Value = string(s.labelValue())
	}
	if !exists || s.Intn(2) == 0 {
		toleration.Key = s.key()
	}
	if s.Intn(20) == 0 {
		toleration.Key = s.of("outer space", "a/b/c", strings.Repeat("é", 317))
	}
	if toleration.Effect == corev1.TaintEffectNoExecute && s.Intn(2) == 0 {
		toleration.TolerationSeconds = new([]int64{0, 1, 300, -1, 1 << 62}[s.Intn(5)])
	}
	return toleration
}

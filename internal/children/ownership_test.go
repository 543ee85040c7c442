package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func TestFieldsBesideTheOperatorsAreKept(t *testing.T) {
	echo := newEcho(func(e *echov1.Echo) { e.Spec.TargetPort = 80 })
	objects := desiredState(echo)
	pod := objects.pod()
	pod.SecurityContext.FSGroup = new(int64(2000))
	pod.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c1,c2"}
	pod.SecurityContext.Sysctls = append(pod.SecurityContext.Sysctls, corev1.Sysctl{Name: "kernel.shm_rmid_forced", Value: "1"})
	pod.NodeSelector["pool"] = "spot"
	pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name"}}
	pod.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
	pod.TopologySpreadConstraints = append(pod.TopologySpreadConstraints, corev1.TopologySpreadConstraint{TopologyKey: "rack"})
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "certs"})
	container := &pod.Containers[0]
	container.Ports = append(container.Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: 9090, Protocol: corev1.ProtocolTCP})
	container.Env = append(container.Env, corev1.EnvVar{Name: "PROXY"})
	container.ReadinessProbe.HTTPGet.HTTPHeaders = []corev1.HTTPHeader{{Name: "x"}}
	container.Lifecycle.PostStart = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}
	container.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	pod.Containers = append([]corev1.Container{{Name: "mesh", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}, pod.Containers...)
	service := objects.service()
	service.Spec.Ports[0].AppProtocol = new("kubernetes.io/ws")
	service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP

	again := objects.deepCopy()
	again.mutate(echo)
	equal(t, again, objects)
}

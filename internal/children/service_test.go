package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestServiceHasOnePortWithItsAppProtocolAndNodePort(t *testing.T) {
	for name, live := range map[string][]corev1.ServicePort{
		"another name":        {{Name: "web", AppProtocol: new("http"), NodePort: 30080}},
		"another port":        {{Name: "http", AppProtocol: new("http"), NodePort: 30080, Port: 81, Protocol: corev1.ProtocolUDP}},
		"another target port": {{Name: "http", AppProtocol: new("http"), NodePort: 30080, TargetPort: intstr.FromInt32(5678)}},
		"several ports":       {{Name: "metrics", Port: 9090}, {Name: "http", AppProtocol: new("http"), NodePort: 30080}},
	} {
		t.Run(name, func(t *testing.T) {
			service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: live}}
			Service(service, newEcho())
			equal(t, service.Spec.Ports, []corev1.ServicePort{{
				Name: "http", AppProtocol: new("http"), NodePort: 30080,
				Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(containerPortName),
			}})
		})
	}
}

func TestContainerPortReplacesTheOldName(t *testing.T) {
	const target = 5678
	ours := corev1.ContainerPort{Name: containerPortName, ContainerPort: target, Protocol: corev1.ProtocolTCP}
	metrics := corev1.ContainerPort{Name: "metrics", ContainerPort: 9090}
	for name, c := range map[string]struct{ live, want []corev1.ContainerPort }{
		"none": {nil, []corev1.ContainerPort{ours}},
		"old name": {
			[]corev1.ContainerPort{metrics, {Name: "http", ContainerPort: 80, HostPort: 80, HostIP: "127.0.0.1"}},
			[]corev1.ContainerPort{metrics, ours},
		},
		"both names, same number": {
			[]corev1.ContainerPort{{Name: "http", ContainerPort: target}, ours, metrics},
			[]corev1.ContainerPort{ours, metrics},
		},
		"both names, number before the change": {
			[]corev1.ContainerPort{{Name: containerPortName, ContainerPort: 80}, {Name: "http", ContainerPort: 80}},
			[]corev1.ContainerPort{ours},
		},
		"another port with the old name": {
			[]corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, ours},
			[]corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, ours},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ports := c.live
			for range 2 {
				mutatePorts(&ports, target)
				equal(t, ports, c.want)
			}
		})
	}
}

func TestPortNameOfAnEarlierVersionIsReplaced(t *testing.T) {
	echo := newEcho()
	objects := desiredState(echo)
	want := objects.deepCopy()
	objects.pod().Containers[0].Ports[0].Name = "http"
	objects.mutate(echo)
	equal(t, objects, want)
}

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

package children

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
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

// The two cannot be written at the same time, and the write of either may be denied.
func TestServiceHasThePortOfTheRouteBeforeAndAfterEachWrite(t *testing.T) {
	ports := []int32{1, 80, 81, routePort, routePort + 1, 65535}
	withPort := func(port int32, routed bool) *echov1.Echo {
		return newEcho(func(e *echov1.Echo) {
			e.Spec.Port, e.Spec.Route = port, nil
			if routed {
				e.Spec.Route = &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "public"}}}
			}
		})
	}
	for _, before := range ports {
		for _, after := range ports {
			service, route := &corev1.Service{}, &gatewayv1.HTTPRoute{}
			Service(service, withPort(before, true))
			HTTPRoute(route, withPort(before, true))
			newService, newRoute := service.DeepCopy(), route.DeepCopy()
			Service(newService, withPort(after, true))
			HTTPRoute(newRoute, withPort(after, true))
			for _, s := range []*corev1.Service{service, newService} {
				for _, r := range []*gatewayv1.HTTPRoute{route, newRoute} {
					backend := *r.Spec.Rules[0].BackendRefs[0].Port
					if !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == backend }) {
						t.Errorf("from port %d to %d: the route refers to port %d of a Service with %v", before, after, backend, s.Spec.Ports)
					}
				}
			}
			numbers := map[int32]bool{}
			for _, p := range newService.Spec.Ports {
				if numbers[p.Port] {
					t.Errorf("from port %d to %d: two ports of the Service have the number %d", before, after, p.Port)
				}
				numbers[p.Port] = true
			}
			if !numbers[after] {
				t.Errorf("from port %d to %d: the Service has only %v", before, after, newService.Spec.Ports)
			}
			Service(newService, withPort(after, false))
			if len(newService.Spec.Ports) != 1 || newService.Spec.Ports[0].Port != after {
				t.Errorf("without a route, the Service has %v, want only port %d", newService.Spec.Ports, after)
			}
		}
	}
}

package children

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// The HTTPRoute names a port that the Service has, whichever of the two is written first, or if the other write is denied.
func TestPortOfTheRouteIsInTheServiceBeforeAndAfterEachWrite(t *testing.T) {
	forEach := func(visit func(description string, echo *echov1.Echo)) {
		for _, port := range []int32{1, 80, routePort, routePort + 1, 65535} {
			withPort := func(e *echov1.Echo) { e.Spec.Port = port }
			visit(fmt.Sprintf("port %d", port), newEcho(withPort))
			visit(fmt.Sprintf("port %d, routed", port), newEcho(withPort, withRoute))
		}
	}
	forEach(func(from string, before *echov1.Echo) {
		forEach(func(to string, after *echov1.Echo) {
			t.Run(from+" to "+to, func(t *testing.T) {
				old := desiredState(before)
				edited := old.deepCopy()
				edited.mutate(after)
				expectPorts(t, old.service(), before)
				expectPorts(t, edited.service(), after)
				if !WantsHTTPRoute(before) || !WantsHTTPRoute(after) {
					return
				}
				for _, service := range []*corev1.Service{old.service(), edited.service()} {
					for _, route := range []*gatewayv1.HTTPRoute{old.route(), edited.route()} {
						named := *route.Spec.Rules[0].BackendRefs[0].Port
						if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == named }) {
							t.Errorf("the HTTPRoute names port %d, but the Service has the ports %v", named, service.Spec.Ports)
						}
					}
				}
			})
		})
	})
}

// expectPorts checks that the Service has the port of the Echo and, with a route, that of the route, each once and in this order.
func expectPorts(t *testing.T, service *corev1.Service, echo *echov1.Echo) {
	t.Helper()
	want := []int32{echo.Spec.Port}
	if WantsHTTPRoute(echo) && echo.Spec.Port != routePort {
		want = append(want, routePort)
	}
	var got []int32
	for _, port := range service.Spec.Ports {
		got = append(got, port.Port)
	}
	if !slices.Equal(got, want) {
		t.Errorf("ports of the Service = %v, want %v", got, want)
	}
}

func TestPortsKeepTheirAppProtocolAndNodePort(t *testing.T) {
	web := corev1.ServicePort{
		Name: "http", AppProtocol: new("http"), NodePort: 30080,
		Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(containerPortName),
	}
	route := web
	route.Name, route.AppProtocol, route.NodePort, route.Port = routePortName, new("kubernetes.io/ws"), 30081, routePort
	changed := func(port corev1.ServicePort, change func(*corev1.ServicePort)) corev1.ServicePort {
		change(&port)
		return port
	}
	renamed := func(p *corev1.ServicePort) { p.Name = "x" }
	changedToUDP := func(p *corev1.ServicePort) { p.Port, p.Protocol = 81, corev1.ProtocolUDP }
	changedTarget := func(p *corev1.ServicePort) { p.TargetPort = intstr.FromInt32(5678) }
	for name, live := range map[string][]corev1.ServicePort{
		"unchanged":           {web, route},
		"another order":       {route, web},
		"renamed port":        {route, changed(web, renamed)},
		"additional port":     {{Name: "metrics", Port: 9090}, web, route},
		"another port":        {changed(web, changedToUDP), changed(route, changedToUDP)},
		"another target port": {changed(web, changedTarget), changed(route, changedTarget)},
	} {
		t.Run(name, func(t *testing.T) {
			routed := &corev1.Service{Spec: corev1.ServiceSpec{Ports: live}}
			service := routed.DeepCopy()
			Service(routed, newEcho(withRoute), Inputs{})
			equal(t, routed.Spec.Ports, []corev1.ServicePort{web, route})
			Service(service, newEcho(), Inputs{KeepsRoutePort: true})
			equal(t, service.Spec.Ports, []corev1.ServicePort{web, route})
			Service(service, newEcho(), Inputs{})
			Service(service, newEcho(), Inputs{KeepsRoutePort: true})
			equal(t, service.Spec.Ports, []corev1.ServicePort{web})
			if ConcernsNodes(routed, service) || !ConcernsNodes(service, routed) {
				t.Error("nodes have to add a port, and need not remove one")
			}
			Service(service, newEcho(withRoute, func(e *echov1.Echo) { e.Spec.Port = routePort }), Inputs{})
			Service(service, newEcho(), Inputs{KeepsRoutePort: true})
			equal(t, len(service.Spec.Ports), 2)
		})
	}
}

package children

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// containerPortName is the name of the container's port. The Service refers to the port by
	// name, so that pods with the old and with the new targetPort receive requests during a
	// rollout. The first container of a pod that has a port with this name receives the
	// requests, so the name must not be one that an injected container uses.
	containerPortName = "kkloud-echo"

	// portName is the name of the Service's port for clients in the cluster.
	portName = "http"

	// routePortName and routePort are those of the Service's port for Gateways. Its number does not depend on spec.port, so an
	// edit of spec.port changes nothing for the clients of a Gateway, although Service and HTTPRoute are written one after the other.
	routePortName       = "http-route" // Service meshes take the protocol from the prefix.
	routePort     int32 = 5677
)

// Service mutates the Service of the Echo.
func Service(service *corev1.Service, echo *echov1.Echo, in Inputs) {
	setMeta(service, echo, serverComponent)
	service.Spec.Type = cmp.Or(ptr.Deref(echo.Spec.Service, echov1.Service{}).Type, corev1.ServiceTypeClusterIP)
	// These fields belong to other types, and would remain after the type is reverted.
	service.Spec.ExternalName = ""
	if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		service.Spec.LoadBalancerSourceRanges = nil
	}
	service.Spec.Selector = Selector(echo)

	live := service.Spec.Ports
	service.Spec.Ports = []corev1.ServicePort{servicePort(live, portName, echo.Spec.Port)}
	isKept := in.KeepsRoutePort && slices.ContainsFunc(live, func(p corev1.ServicePort) bool { return p.Name == routePortName || p.Port == routePort })
	if needsRoutePort := (WantsHTTPRoute(echo) || isKept) && echo.Spec.Port != routePort; needsRoutePort {
		service.Spec.Ports = append(service.Spec.Ports, servicePort(live, routePortName, routePort))
	}
	outlive(service, in.Pods)
}

// ConcernsNodes reports whether clients may notice that a node has not applied a change of the Service: it is more than
// the removal of a port.
func ConcernsNodes(before, after *corev1.Service) bool {
	spec := before.Spec.DeepCopy()
	spec.Ports = slices.DeleteFunc(spec.Ports, func(p corev1.ServicePort) bool {
		return !slices.ContainsFunc(after.Spec.Ports, func(a corev1.ServicePort) bool { return a.Name == p.Name })
	})
	return !equality.Semantic.DeepEqual(spec, &after.Spec)
}

// servicePort returns a port of the Service. It keeps the appProtocol and the nodePort of the live port with the name. The port for
// clients in the cluster may have been renamed.
func servicePort(live []corev1.ServicePort, name string, number int32) (port corev1.ServicePort) {
	i := slices.IndexFunc(live, func(p corev1.ServicePort) bool { return p.Name == name })
	if mayBeRenamed := i < 0 && name == portName; mayBeRenamed {
		i = slices.IndexFunc(live, func(p corev1.ServicePort) bool { return p.Name != routePortName })
	}
	if i >= 0 {
		port = live[i]
	}
	port.Name, port.Protocol, port.Port = name, corev1.ProtocolTCP, number
	port.TargetPort = intstr.FromString(containerPortName)
	return port
}

// URL returns the URL of the Service inside the cluster, without the cluster domain, which
// differs between clusters.
func URL(echo *echov1.Echo) string {
	host := fmt.Sprintf("%s.%s.svc", Name(echo), echo.Namespace)
	if echo.Spec.Port == 80 {
		return "http://" + host
	}
	return fmt.Sprintf("http://%s:%d", host, echo.Spec.Port)
}

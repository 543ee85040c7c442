package children

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// containerPortName is the name of the container's port. The Service refers to the port by
	// name, so that pods with the old and with the new targetPort receive requests during a
	// rollout. The first container of a pod that has a port with this name receives the
	// requests, so the name must not be one that an injected container uses.
	containerPortName = "kkloud-echo"

	// portName is the name of the Service's port.
	portName = "http"
)

// Service mutates the Service of the Echo.
func Service(service *corev1.Service, echo *echov1.Echo) {
	setMeta(service, echo, serverComponent)
	service.Spec.Type = corev1.ServiceTypeClusterIP
	// These fields belong to other types, and would remain after the type is reverted.
	service.Spec.ExternalName, service.Spec.LoadBalancerSourceRanges = "", nil
	service.Spec.Selector = Selector(echo)

	// The Service has exactly one port, which keeps its appProtocol and nodePort.
	var port corev1.ServicePort
	ports := service.Spec.Ports
	if i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return p.Name == portName }); i >= 0 {
		port = ports[i]
	} else if len(ports) > 0 {
		port = ports[0]
	}
	port.Name, port.Protocol, port.Port = portName, corev1.ProtocolTCP, echo.Spec.Port
	port.TargetPort = intstr.FromString(containerPortName)
	service.Spec.Ports = []corev1.ServicePort{port}
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

package children

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// containerPortName is the name of the container's port. The Service refers to the port by
	// name, so that pods with the old and with the new targetPort receive requests during a
	// rollout. The first container of a pod that has a port with this name receives the
	// requests, so the name must not be one that an injected container uses.
	containerPortName = "kkloud-echo"

	// portName is the name of the Service's port and, up to version 0.4.0, of the container's.
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
	port.TargetPort = targetPort(port.TargetPort, echo)
	if service.ResourceVersion == "" {
		port.TargetPort = intstr.FromString(containerPortName)
	}
	service.Spec.Ports = []corev1.ServicePort{port}
}

// targetPort returns the target port of an existing Service: the name of the container's port. Pods
// of an earlier version have another name. So the Service of an earlier version refers to the port
// by number, which pods of both versions listen on, until this version, the first one with the
// condition Overridden, has reported the rollout of the current generation.
func targetPort(live intstr.IntOrString, echo *echov1.Echo) intstr.IntOrString {
	name, number := intstr.FromString(containerPortName), intstr.FromInt32(echo.Spec.TargetPort)
	if live == name {
		return name
	}
	if meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionOverridden) == nil {
		return number
	}
	progressing := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing)
	rolledOut := progressing != nil && progressing.Reason == echov1.ReasonRolledOut && progressing.ObservedGeneration == echo.Generation
	if (live == number || live == intstr.FromString(portName)) && !rolledOut {
		return number
	}
	return name
}

// DependsOnStatus reports whether a new status of the Echo changes the desired state of its Service. It
// does so once, when the status reports the rollout after the upgrade from an earlier version.
func DependsOnStatus(service *corev1.Service, echo *echov1.Echo, status echov1.EchoStatus) bool {
	if service == nil || len(service.Spec.Ports) == 0 {
		return false
	}
	live, after := service.Spec.Ports[0].TargetPort, *echo
	after.Status = status
	return targetPort(live, echo) != targetPort(live, &after)
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

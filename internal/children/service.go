package children

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	setMeta(service, echo)
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
	byName := intstr.FromString(containerPortName)
	if port.TargetPort != byName {
		port.TargetPort = intstr.FromInt32(echo.Spec.TargetPort)
	}
	if service.ResourceVersion == "" || rolledOut(echo) {
		port.TargetPort = byName
	}
	service.Spec.Ports = []corev1.ServicePort{port}
}

// rolledOut reports whether every pod of the Echo has a port with the name containerPortName: this
// version of the operator, the first one with the condition Overridden, has reported the rollout
// of the current generation. Until then, the Service of an earlier version refers to the port by
// number, which pods of both versions listen on.
func rolledOut(echo *echov1.Echo) bool {
	progressing := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing)
	return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionOverridden) != nil &&
		progressing != nil && progressing.Status == metav1.ConditionFalse &&
		progressing.Reason == echov1.ReasonRolledOut && progressing.ObservedGeneration == echo.Generation
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

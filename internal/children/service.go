package children

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/intstr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// portName is the name of the Service's port.
const portName = "http"

// containerPortName is the name of the container's port. The Service refers to the port by name,
// so that pods with the old and with the new targetPort receive requests during a rollout.
const containerPortName = "kkloud-echo"

// Service mutates the Service of the Echo.
func Service(service *corev1.Service, echo *echov1.Echo) {
	setMeta(service, echo)
	service.Spec.Type = corev1.ServiceTypeClusterIP
	// These fields belong to other types, and would remain after the type is reverted.
	service.Spec.ExternalName, service.Spec.LoadBalancerSourceRanges = "", nil
	service.Spec.Selector = Selector(echo)
	service.Spec.Ports = slices.DeleteFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name != portName })
	port := item(&service.Spec.Ports, func(corev1.ServicePort) bool { return true })
	service.Spec.Ports = service.Spec.Ports[:1]
	port.Name, port.Protocol, port.Port = portName, corev1.ProtocolTCP, echo.Spec.Port
	if service.ResourceVersion == "" || hasNewPods(echo) {
		port.TargetPort = intstr.FromString(containerPortName)
	} else if port.TargetPort != intstr.FromString(containerPortName) {
		// Version 0.4.0 named the container's port differently. The number selects its pods, too.
		port.TargetPort = intstr.FromInt32(echo.Spec.TargetPort)
	}
}

// hasNewPods reports whether all pods have the container port's name of this version. Up to
// version 0.4.0, the status had no condition Overridden.
func hasNewPods(echo *echov1.Echo) bool {
	progressing := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionProgressing)
	return meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionOverridden) != nil && progressing != nil &&
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

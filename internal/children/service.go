package children

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// portName connects the Service with the container's port by name, so that pods of an
// old and a new targetPort both receive requests during a rollout.
const portName = "http"

// Service shapes the Service of the Echo.
func Service(service *corev1.Service, echo *echov1.Echo) {
	setMeta(service, echo)
	service.Spec.Type = corev1.ServiceTypeClusterIP
	// These belong to other types, and would stay when the type comes back.
	service.Spec.ExternalName, service.Spec.LoadBalancerSourceRanges = "", nil
	service.Spec.Selector = Selector(echo)
	service.Spec.Ports = []corev1.ServicePort{{
		Name:       portName,
		Protocol:   corev1.ProtocolTCP,
		Port:       echo.Spec.Port,
		TargetPort: intstr.FromString(portName),
	}}
}

// URL returns the Service's URL inside the cluster, without the cluster's own domain,
// which differs between clusters.
func URL(echo *echov1.Echo) string {
	host := fmt.Sprintf("%s.%s.svc", Name(echo), echo.Namespace)
	if echo.Spec.Port == 80 {
		return "http://" + host
	}
	return fmt.Sprintf("http://%s:%d", host, echo.Spec.Port)
}

package children

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// unprivilegedPorts allows a non-root server to listen on a port below 1024. The restricted Pod
// Security Standard allows this sysctl.
const unprivilegedPorts = "net.ipv4.ip_unprivileged_port_start"

// mutatePodSecurity sets the user that the Echo declares. Otherwise, the image or the cluster chooses one. OpenShift
// assigns users from a range of the namespace, and rejects others.
func mutatePodSecurity(security *corev1.PodSecurityContext, echo *echov1.Echo) {
	security.RunAsUser, security.RunAsGroup = nil, nil
	if isDeclared := echo.Spec.Pod != nil && echo.Spec.Pod.RunAsUser != 0; isDeclared {
		security.RunAsUser = new(echo.Spec.Pod.RunAsUser)
	}
	security.RunAsNonRoot = new(true)
	security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

func mutateUnprivilegedPorts(security *corev1.PodSecurityContext, echo *echov1.Echo) {
	isOurs := func(sysctl corev1.Sysctl) bool { return sysctl.Name == unprivilegedPorts }
	if targetPort(echo) < 1024 {
		ensureItem(&security.Sysctls, corev1.Sysctl{Name: unprivilegedPorts}, isOurs).Value = "0"
	} else {
		security.Sysctls = slices.DeleteFunc(security.Sysctls, isOurs)
	}
}

// mutateContainerSecurity does not change what restricts the container further. A container's own
// profiles and options stay, too: admission sets them on some clusters.
func mutateContainerSecurity(security *corev1.SecurityContext) {
	security.AllowPrivilegeEscalation = new(false)
	security.ReadOnlyRootFilesystem = new(true)
	security.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	security.RunAsUser, security.RunAsGroup = nil, nil
	if security.Privileged != nil && *security.Privileged {
		security.Privileged = nil
	}
	if security.RunAsNonRoot != nil && !*security.RunAsNonRoot {
		security.RunAsNonRoot = nil
	}
}

package children

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// RootImageAnnotation contains, on a Deployment, the image that would run as root if the pod did not
// set another user. The server runs as nonRootUser as long as it has this image. For every other
// image, the image or the cluster chooses the user: OpenShift assigns users from a range of the
// namespace, and rejects others.
const RootImageAnnotation = "kkloud.io/root-image"

// nonRootUser is the user and the group of images that would run as root, for example busybox.
const nonRootUser int64 = 65532

// NoteRootImage notes that the image of the server would run as root. It returns false if that is
// noted.
func NoteRootImage(deployment *appsv1.Deployment) bool {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == containerName && deployment.Annotations[RootImageAnnotation] != container.Image {
			metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, RootImageAnnotation, container.Image)
			return true
		}
	}
	return false
}

// mutateUser sets the user for a noted image.
func mutateUser(deployment *appsv1.Deployment, image string) {
	security := deployment.Spec.Template.Spec.SecurityContext
	security.RunAsUser, security.RunAsGroup = nil, nil
	if noted, found := deployment.Annotations[RootImageAnnotation]; found && noted == image {
		security.RunAsUser, security.RunAsGroup = new(nonRootUser), new(nonRootUser)
	}
}

// unprivilegedPorts allows a non-root server to listen on a port below 1024. The restricted Pod
// Security Standard allows this sysctl.
const unprivilegedPorts = "net.ipv4.ip_unprivileged_port_start"

func mutatePodSecurity(security *corev1.PodSecurityContext) {
	security.RunAsNonRoot = new(true)
	security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
}

func mutateUnprivilegedPorts(security *corev1.PodSecurityContext, echo *echov1.Echo) {
	isOurs := func(sysctl corev1.Sysctl) bool { return sysctl.Name == unprivilegedPorts }
	if echo.Spec.TargetPort < 1024 {
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

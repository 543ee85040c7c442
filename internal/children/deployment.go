package children

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	containerName = "echo"
	tmpVolume     = "tmp"

	// nonRootUser is the user of the published server image. The operator sets it for every
	// image: many images, for example busybox, run as root by default and would be rejected.
	nonRootUser int64 = 65532

	// The server stops listening immediately on SIGTERM, but every node needs a moment to
	// remove the endpoint. The pod therefore waits for preStopSeconds before SIGTERM.
	preStopSeconds     int64 = 5
	gracePeriodSeconds int64 = 30

	// A server starts within a second. Two minutes allow for a slow image pull.
	progressDeadlineSeconds int32 = 120

	// A server of the user's own has no probes. It counts as available after it has run for
	// this long, so a server that crashes immediately never becomes available.
	ownServerReadySeconds int32 = 5
)

// Deployment mutates the Deployment of the Echo. The server image is defaultImage, unless the
// Echo sets its own.
func Deployment(deployment *appsv1.Deployment, echo *echov1.Echo, defaultImage string) {
	setMeta(deployment, echo)
	spec := &deployment.Spec
	spec.Replicas = new(echo.Spec.Replicas)
	spec.Paused = false
	spec.Selector = &metav1.LabelSelector{MatchLabels: Selector(echo)}
	spec.MinReadySeconds = 0
	if hasOwnServer(echo) {
		spec.MinReadySeconds = ownServerReadySeconds
	}
	spec.ProgressDeadlineSeconds = new(progressDeadlineSeconds)
	spec.RevisionHistoryLimit = ptr.To[int32](1)
	spec.Strategy = appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxUnavailable: new(intstr.FromInt32(0)),
			MaxSurge:       new(intstr.FromInt32(1)),
		},
	}
	spec.Template.Labels = labels.Merge(spec.Template.Labels, ownedLabels(echo))
	mutatePod(&spec.Template.Spec, echo, defaultImage)
}

func mutatePod(pod *corev1.PodSpec, echo *echov1.Echo, defaultImage string) {
	pod.AutomountServiceAccountToken = new(false)
	pod.EnableServiceLinks = new(false)
	pod.HostNetwork, pod.HostPID, pod.HostIPC = false, false, false
	pod.TerminationGracePeriodSeconds = new(gracePeriodSeconds)
	pod.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot:   new(true),
		RunAsUser:      new(nonRootUser),
		RunAsGroup:     new(nonRootUser),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Sysctls:        sysctls(echo.Spec.TargetPort),
	}
	pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		spreadOver(corev1.LabelTopologyZone, echo),
		spreadOver(corev1.LabelHostname, echo),
	}
	pod.Volumes = upsert(pod.Volumes, corev1.Volume{
		Name: tmpVolume,
		VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("64Mi"))},
		},
	}, func(volume corev1.Volume) bool { return volume.Name == tmpVolume })

	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		pod.Containers = slices.Insert(pod.Containers, 0, corev1.Container{Name: containerName})
		i = 0
	}
	mutateContainer(&pod.Containers[i], echo, defaultImage)
}

func mutateContainer(container *corev1.Container, echo *echov1.Echo, defaultImage string) {
	container.Image = defaultImage
	if echo.Spec.Image != "" {
		container.Image = echo.Spec.Image
	}
	container.ImagePullPolicy = corev1.PullIfNotPresent
	container.Ports = []corev1.ContainerPort{{
		Name:          portName,
		ContainerPort: echo.Spec.TargetPort,
		Protocol:      corev1.ProtocolTCP,
	}}
	container.Resources = resources(echo)
	container.VolumeMounts = upsert(container.VolumeMounts,
		corev1.VolumeMount{Name: tmpVolume, MountPath: "/tmp"},
		func(mount corev1.VolumeMount) bool { return mount.MountPath == "/tmp" })
	container.Lifecycle = &corev1.Lifecycle{
		PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: preStopSeconds}},
	}
	// The status of the Echo repeats the end of the log of a crashed server.
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	container.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if hasOwnServer(echo) {
		mutateOwnServer(container, echo)
	} else {
		mutateDefaultServer(container, echo)
	}
}

// hasOwnServer reports whether the container runs the command of the user instead of a server
// that accepts the arguments of http-echo.
func hasOwnServer(echo *echov1.Echo) bool {
	return len(echo.Spec.Command)+len(echo.Spec.Args) > 0
}

// mutateDefaultServer sets the arguments and probes of http-echo.
func mutateDefaultServer(container *corev1.Container, echo *echov1.Echo) {
	container.Command = nil
	container.Args = []string{
		"-text=" + escapeDollars(Text(echo)),
		"-listen=:" + strconv.Itoa(int(echo.Spec.TargetPort)),
	}
	container.Env = slices.DeleteFunc(container.Env, func(env corev1.EnvVar) bool {
		return env.Name == "ECHO_TEXT" || env.Name == "ECHO_PORT"
	})
	container.ReadinessProbe = healthProbe(2)
	container.LivenessProbe = healthProbe(10)
}

// mutateOwnServer sets exactly the command and args that the user wrote. The server gets no
// probes, because the operator does not know whether it listens, or on which path.
func mutateOwnServer(container *corev1.Container, echo *echov1.Echo) {
	container.Command = echo.Spec.Command
	container.Args = echo.Spec.Args
	for _, env := range []corev1.EnvVar{
		{Name: "ECHO_TEXT", Value: escapeDollars(Text(echo))},
		{Name: "ECHO_PORT", Value: strconv.Itoa(int(echo.Spec.TargetPort))},
	} {
		container.Env = upsert(container.Env, env, func(e corev1.EnvVar) bool { return e.Name == env.Name })
	}
	container.ReadinessProbe = nil
	container.LivenessProbe = nil
}

// escapeDollars escapes the text for the kubelet, which expands $(NAME) in arguments and
// variables and replaces $$ with $.
func escapeDollars(text string) string {
	return strings.ReplaceAll(text, "$", "$$")
}

func healthProbe(periodSeconds int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path:   "/health",
			Port:   intstr.FromString(portName),
			Scheme: corev1.URISchemeHTTP,
		}},
		PeriodSeconds:    periodSeconds,
		TimeoutSeconds:   1,
		SuccessThreshold: 1,
		FailureThreshold: 3,
	}
}

// resources returns the resources of the Echo, or small defaults if it sets none. The API
// server stores quantities with a precision of one thousandth, so resources rounds to that.
func resources(echo *echov1.Echo) corev1.ResourceRequirements {
	result := echo.Spec.Resources.DeepCopy()
	if len(result.Limits)+len(result.Requests) == 0 {
		result.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: resource.MustParse("16Mi"),
		}
		result.Limits = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("64Mi"),
		}
	}
	for _, list := range []corev1.ResourceList{result.Limits, result.Requests} {
		for name, quantity := range list {
			quantity.RoundUp(resource.Milli)
			list[name] = quantity
		}
	}
	return *result
}

// sysctls allows a non-root server to listen on a port below 1024. The restricted Pod Security
// Standard allows this sysctl.
func sysctls(targetPort int32) []corev1.Sysctl {
	if targetPort >= 1024 {
		return nil
	}
	return []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
}

// spreadOver spreads the pods of one revision over zones or nodes, if possible.
func spreadOver(topologyKey string, echo *echov1.Echo) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew:           1,
		TopologyKey:       topologyKey,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: Selector(echo)},
		MatchLabelKeys:    []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}
}

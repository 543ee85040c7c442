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

	// nonRootUser is the user of the published server image. It is set for every image,
	// as many, busybox for one, would run as root otherwise and be refused.
	nonRootUser int64 = 65532

	// The server stops listening at once on SIGTERM, while endpoints take a moment to
	// leave every node: the pod waits that long first.
	preStopSeconds     int64 = 5
	gracePeriodSeconds int64 = 30

	// A server starts within a second; two minutes allow for a slow pull of its image.
	progressDeadlineSeconds int32 = 120

	// A server of the user's own has no probes: it counts as available when it has run for
	// this long, so that one that crashes at once never does.
	ownServerReadySeconds int32 = 5
)

// Deployment shapes the Deployment of the Echo. The server's image is that of the Echo
// or, where it has none, defaultImage.
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
	shapePod(&spec.Template.Spec, echo, defaultImage)
}

func shapePod(pod *corev1.PodSpec, echo *echov1.Echo, defaultImage string) {
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
	shapeContainer(&pod.Containers[i], echo, defaultImage)
}

func shapeContainer(container *corev1.Container, echo *echov1.Echo, defaultImage string) {
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
	// The end of a crashed server's log becomes part of the Echo's status.
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	container.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	if hasOwnServer(echo) {
		shapeOwnServer(container, echo)
	} else {
		shapeDefaultServer(container, echo)
	}
}

// hasOwnServer tells whether the container runs what the user wrote, instead of a server
// that follows the contract of http-echo.
func hasOwnServer(echo *echov1.Echo) bool {
	return len(echo.Spec.Command)+len(echo.Spec.Args) > 0
}

// shapeDefaultServer follows the contract of http-echo.
func shapeDefaultServer(container *corev1.Container, echo *echov1.Echo) {
	container.Command = nil
	container.Args = []string{
		"-text=" + unexpanded(Text(echo)),
		"-listen=:" + strconv.Itoa(int(echo.Spec.TargetPort)),
	}
	container.Env = slices.DeleteFunc(container.Env, func(env corev1.EnvVar) bool {
		return env.Name == "ECHO_TEXT" || env.Name == "ECHO_PORT"
	})
	container.ReadinessProbe = healthProbe(2)
	container.LivenessProbe = healthProbe(10)
}

// shapeOwnServer gives a server of the user's own exactly the command and args that the
// user wrote. It gets no probes: nothing says that it listens, or on which path.
func shapeOwnServer(container *corev1.Container, echo *echov1.Echo) {
	container.Command = echo.Spec.Command
	container.Args = echo.Spec.Args
	for _, env := range []corev1.EnvVar{
		{Name: "ECHO_TEXT", Value: unexpanded(Text(echo))},
		{Name: "ECHO_PORT", Value: strconv.Itoa(int(echo.Spec.TargetPort))},
	} {
		container.Env = upsert(container.Env, env, func(e corev1.EnvVar) bool { return e.Name == env.Name })
	}
	container.ReadinessProbe = nil
	container.LivenessProbe = nil
}

// unexpanded protects the text from the kubelet, which expands $(NAME) in arguments and
// variables, and turns $$ into $.
func unexpanded(text string) string {
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

// resources returns the Echo's resources or, where it has none, small defaults; rounded
// to the API server's own precision of a thousandth.
func resources(echo *echov1.Echo) corev1.ResourceRequirements {
	wanted := echo.Spec.Resources.DeepCopy()
	if len(wanted.Limits)+len(wanted.Requests) == 0 {
		wanted.Requests = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("10m"),
			corev1.ResourceMemory: resource.MustParse("16Mi"),
		}
		wanted.Limits = corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("64Mi"),
		}
	}
	for _, list := range []corev1.ResourceList{wanted.Limits, wanted.Requests} {
		for name, quantity := range list {
			quantity.RoundUp(resource.Milli)
			list[name] = quantity
		}
	}
	return *wanted
}

// sysctls lets a server without root listen on a port below 1024. The sysctl is among
// those that the restricted Pod Security Standard allows.
func sysctls(targetPort int32) []corev1.Sysctl {
	if targetPort >= 1024 {
		return nil
	}
	return []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
}

// spreadOver spreads the pods of one revision over zones or nodes where it is possible.
func spreadOver(topologyKey string, echo *echov1.Echo) corev1.TopologySpreadConstraint {
	return corev1.TopologySpreadConstraint{
		MaxSkew:           1,
		TopologyKey:       topologyKey,
		WhenUnsatisfiable: corev1.ScheduleAnyway,
		LabelSelector:     &metav1.LabelSelector{MatchLabels: Selector(echo)},
		MatchLabelKeys:    []string{appsv1.DefaultDeploymentUniqueLabelKey},
	}
}

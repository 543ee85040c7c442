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

	// nonRootUser is the user and the group of images that would run as root, for example busybox.
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
	spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	rollingUpdate := ensure(&spec.Strategy.RollingUpdate)
	rollingUpdate.MaxUnavailable = new(intstr.FromInt32(0))
	rollingUpdate.MaxSurge = new(intstr.FromInt32(1))
	spec.Template.Labels = labels.Merge(spec.Template.Labels, ownedLabels(echo))
	image := serverImage(echo, defaultImage)
	mutatePod(&spec.Template.Spec, echo, image)
	mutateUser(deployment, image)
}

// serverImage returns the image of the Echo's server.
func serverImage(echo *echov1.Echo, defaultImage string) string {
	if echo.Spec.Image != "" {
		return echo.Spec.Image
	}
	return defaultImage
}

// rootImageAnnotation contains, on a Deployment, the image that would run as root if the pod did
// not set another user.
const rootImageAnnotation = "kkloud.io/root-image"

// NoteRootImage notes that the image of the server would run as root. It returns false if that is
// noted.
func NoteRootImage(deployment *appsv1.Deployment) bool {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == containerName && deployment.Annotations[rootImageAnnotation] != container.Image {
			metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, rootImageAnnotation, container.Image)
			return true
		}
	}
	return false
}

// mutateUser sets a user only for an image that would run as root. For others the image decides,
// or the cluster: OpenShift assigns users from a range of the namespace, and rejects others.
func mutateUser(deployment *appsv1.Deployment, image string) {
	security := deployment.Spec.Template.Spec.SecurityContext
	security.RunAsUser, security.RunAsGroup = nil, nil
	if noted, found := deployment.Annotations[rootImageAnnotation]; found && noted == image {
		security.RunAsUser, security.RunAsGroup = new(nonRootUser), new(nonRootUser)
	}
}

func mutatePod(pod *corev1.PodSpec, echo *echov1.Echo, image string) {
	pod.AutomountServiceAccountToken = new(false)
	pod.EnableServiceLinks = new(false)
	pod.HostNetwork, pod.HostPID, pod.HostIPC = false, false, false
	pod.TerminationGracePeriodSeconds = new(gracePeriodSeconds)
	security := ensure(&pod.SecurityContext)
	security.RunAsNonRoot = new(true)
	setSeccompProfile(security)
	mutateSysctls(security, echo.Spec.TargetPort)
	mutatePlatform(pod, echo)
	for _, topologyKey := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		spread := item(&pod.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
			return c.TopologyKey == topologyKey && c.WhenUnsatisfiable == corev1.ScheduleAnyway
		})
		spread.TopologyKey, spread.WhenUnsatisfiable = topologyKey, corev1.ScheduleAnyway
		spread.MaxSkew = 1
		spread.LabelSelector = &metav1.LabelSelector{MatchLabels: Selector(echo)}
		spread.MatchLabelKeys = []string{appsv1.DefaultDeploymentUniqueLabelKey}
	}
	volume := item(&pod.Volumes, func(v corev1.Volume) bool { return v.Name == tmpVolume })
	if volume.EmptyDir == nil {
		volume.VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	}
	volume.Name = tmpVolume
	volume.EmptyDir.SizeLimit = new(resource.MustParse("64Mi"))

	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		pod.Containers = slices.Insert(pod.Containers, 0, corev1.Container{Name: containerName})
		i = 0
	}
	mutateContainer(&pod.Containers[i], echo, image)
}

func setSeccompProfile(security *corev1.PodSecurityContext) {
	if security.SeccompProfile == nil || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		security.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
}

// portSysctl allows a non-root server to listen on a port below 1024. The restricted Pod Security
// Standard allows it.
const portSysctl = "net.ipv4.ip_unprivileged_port_start"

func mutateSysctls(security *corev1.PodSecurityContext, targetPort int32) {
	isPort := func(s corev1.Sysctl) bool { return s.Name == portSysctl }
	if targetPort >= 1024 {
		security.Sysctls = slices.DeleteFunc(security.Sysctls, isPort)
		return
	}
	*item(&security.Sysctls, isPort) = corev1.Sysctl{Name: portSysctl, Value: "0"}
}

// imagePlatforms are the architectures of the default image.
var imagePlatforms = []string{"amd64", "arm64"}

// mutatePlatform keeps the pods off nodes that cannot run them. Images of users may have other
// architectures.
func mutatePlatform(pod *corev1.PodSpec, echo *echov1.Echo) {
	if pod.NodeSelector == nil {
		pod.NodeSelector = map[string]string{}
	}
	pod.NodeSelector[corev1.LabelOSStable] = "linux"
	if echo.Spec.Image != "" {
		removePlatform(pod)
		return
	}
	required := ensure(&ensure(&ensure(&pod.Affinity).NodeAffinity).RequiredDuringSchedulingIgnoredDuringExecution)
	if len(required.NodeSelectorTerms) == 0 {
		required.NodeSelectorTerms = []corev1.NodeSelectorTerm{{}}
	}
	for i := range required.NodeSelectorTerms {
		expression := item(&required.NodeSelectorTerms[i].MatchExpressions, isPlatform)
		expression.Key, expression.Operator, expression.Values = corev1.LabelArchStable, corev1.NodeSelectorOpIn, imagePlatforms
	}
}

func isPlatform(r corev1.NodeSelectorRequirement) bool {
	return r.Key == corev1.LabelArchStable && r.Operator == corev1.NodeSelectorOpIn
}

// removePlatform removes what mutatePlatform sets for the default image.
func removePlatform(pod *corev1.PodSpec) {
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	node := pod.Affinity.NodeAffinity
	required := node.RequiredDuringSchedulingIgnoredDuringExecution
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchExpressions = slices.DeleteFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
			return isPlatform(r) && slices.Equal(r.Values, imagePlatforms)
		})
	}
	required.NodeSelectorTerms = slices.DeleteFunc(required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return len(term.MatchExpressions)+len(term.MatchFields) == 0
	})
	if len(required.NodeSelectorTerms) > 0 {
		return
	}
	node.RequiredDuringSchedulingIgnoredDuringExecution = nil
	if len(node.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		pod.Affinity.NodeAffinity = nil
	}
	if *pod.Affinity == (corev1.Affinity{}) {
		pod.Affinity = nil
	}
}

func mutateContainer(container *corev1.Container, echo *echov1.Echo, image string) {
	container.Image = image
	container.ImagePullPolicy = corev1.PullIfNotPresent
	mutatePorts(container, echo.Spec.TargetPort)
	owned := resources(echo)
	container.Resources.Limits, container.Resources.Requests = owned.Limits, owned.Requests
	mount := item(&container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/tmp" })
	mount.Name, mount.MountPath, mount.ReadOnly, mount.SubPath = tmpVolume, "/tmp", false, ""
	lifecycle := ensure(&container.Lifecycle)
	if lifecycle.PreStop == nil || lifecycle.PreStop.Sleep == nil {
		lifecycle.PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{}}
	}
	lifecycle.PreStop.Sleep.Seconds = preStopSeconds
	// The status of the Echo repeats the end of the log of a crashed server.
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	mutateSecurity(ensure(&container.SecurityContext))
	if hasOwnServer(echo) {
		mutateOwnServer(container, echo)
	} else {
		mutateDefaultServer(container, echo)
	}
}

// mutatePorts sets the server's port. Up to version 0.4.0 it was named http: containers that
// admission adds before the server may have a port of that name, which a Service would find first.
func mutatePorts(container *corev1.Container, targetPort int32) {
	isOurs := func(p corev1.ContainerPort) bool { return p.Name == containerPortName }
	if !slices.ContainsFunc(container.Ports, isOurs) {
		container.Ports = slices.DeleteFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == portName })
	}
	container.Ports = slices.DeleteFunc(container.Ports, func(p corev1.ContainerPort) bool {
		return !isOurs(p) && p.ContainerPort == targetPort && p.Protocol == corev1.ProtocolTCP
	})
	port := item(&container.Ports, isOurs)
	port.Name, port.ContainerPort, port.Protocol, port.HostPort = containerPortName, targetPort, corev1.ProtocolTCP, 0
}

// mutateSecurity sets what the restricted Pod Security Standard requires, and reverts what weakens
// it. It leaves the user to the image, the pod or the cluster.
func mutateSecurity(security *corev1.SecurityContext) {
	security.AllowPrivilegeEscalation = new(false)
	security.ReadOnlyRootFilesystem = new(true)
	if security.Privileged != nil {
		security.Privileged = new(false)
	}
	if security.RunAsNonRoot != nil {
		security.RunAsNonRoot = new(true)
	}
	capabilities := ensure(&security.Capabilities)
	capabilities.Add, capabilities.Drop = nil, []corev1.Capability{"ALL"}
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
	mutateProbe(ensure(&container.ReadinessProbe), 2)
	mutateProbe(ensure(&container.LivenessProbe), 10)
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
		*item(&container.Env, func(e corev1.EnvVar) bool { return e.Name == env.Name }) = env
	}
	container.ReadinessProbe = nil
	container.LivenessProbe = nil
}

// escapeDollars escapes the text for the kubelet, which expands $(NAME) in arguments and
// variables and replaces $$ with $.
func escapeDollars(text string) string {
	return strings.ReplaceAll(text, "$", "$$")
}

func mutateProbe(probe *corev1.Probe, periodSeconds int32) {
	if probe.HTTPGet == nil {
		probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}
	}
	probe.HTTPGet.Path, probe.HTTPGet.Host = "/health", ""
	probe.HTTPGet.Port = intstr.FromString(containerPortName)
	probe.HTTPGet.Scheme = corev1.URISchemeHTTP
	probe.PeriodSeconds = periodSeconds
	probe.TimeoutSeconds = 1
	probe.SuccessThreshold = 1
	probe.FailureThreshold = 3
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

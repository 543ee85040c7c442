package children

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	containerName = "echo"

	// The environment variables of a custom server.
	textVariable = "ECHO_TEXT"
	portVariable = "ECHO_PORT"

	// A custom server may stop listening immediately on SIGTERM, but every node needs a moment
	// to remove the endpoint. Its pod therefore waits for preStopSeconds before SIGTERM. The default server drains.
	preStopSeconds int64 = 5

	// The port of the default server.
	serverPort int32 = 5678

	// The port of the default server for probes and metrics, and another one if the server itself has that.
	healthPort, otherHealthPort int32 = 5679, 5680
	healthPortName                    = "health"

	// startupSeconds is the time that a custom server has to start.
	startupSeconds int32 = 300
)

func mutateContainer(container *corev1.Container, echo *echov1.Echo, image string) {
	container.Image = image
	container.ImagePullPolicy = corev1.PullIfNotPresent
	mutatePort(&container.Ports, containerPortName, targetPort(echo))
	setResources(container, echo.Spec.Resources, defaultServerResources)
	// The status of the Echo repeats the end of the log of a crashed server.
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	mutateContainerSecurity(ensure(&container.SecurityContext))
	if isCustomServer(echo) {
		mutateCustomServer(container, echo)
	} else {
		mutateDefaultServer(container, echo)
	}
}

// mutatePort sets a port of a container, which may have others, too.
func mutatePort(ports *[]corev1.ContainerPort, name string, number int32) {
	port := ensureItem(ports, corev1.ContainerPort{Name: name}, func(p corev1.ContainerPort) bool { return p.Name == name })
	port.ContainerPort, port.Protocol = number, corev1.ProtocolTCP
	port.HostPort, port.HostIP = 0, ""
}

// isCustomServer reports whether the Echo runs an image of the user instead of the default server.
func isCustomServer(echo *echov1.Echo) bool { return echo.Spec.Image != "" }

// targetPort returns the port that the server listens on.
func targetPort(echo *echov1.Echo) int32 {
	if isCustomServer(echo) {
		return cmp.Or(echo.Spec.TargetPort, echo.Spec.Port)
	}
	return cmp.Or(echo.Spec.TargetPort, serverPort)
}

// mutateDefaultServer sets the arguments and the probes of the default server.
func mutateDefaultServer(container *corev1.Container, echo *echov1.Echo) {
	health := healthPort
	if targetPort(echo) == health {
		health = otherHealthPort
	}
	mutatePort(&container.Ports, healthPortName, health)
	container.Command = nil
	container.Args = []string{
		"-text=" + escapeDollars(Text(echo)),
		"-listen=:" + strconv.Itoa(int(targetPort(echo))),
		"-health-listen=:" + strconv.Itoa(int(health)),
	}
	container.Env = slices.DeleteFunc(container.Env, func(env corev1.EnvVar) bool {
		return env.Name == textVariable || env.Name == portVariable
	})
	if code := echo.Spec.StatusCode; code != 0 && code != http.StatusOK {
		container.Args = append(container.Args, "-status-code="+strconv.Itoa(int(code)))
	}
	for _, header := range serverHeaders(echo) {
		container.Args = append(container.Args, "-header="+escapeDollars(header.Name+": "+header.Value))
	}
	ensure(&container.Lifecycle).PreStop = nil
	dropEmpty(&container.Lifecycle)
	container.StartupProbe = nil
	// A server at its CPU limit responds late, and is not to be restarted or taken out of the Service for that.
	mutateProbe(ensure(&container.ReadinessProbe), "/", intstr.FromInt32(health), 1, 5)
	mutateProbe(ensure(&container.LivenessProbe), "/", intstr.FromInt32(health), 10, 10)
}

// mutateCustomServer sets exactly the command and args that the user wrote: without them, the image runs as it is. Its
// root file system is writable, because many images write beside their program.
func mutateCustomServer(container *corev1.Container, echo *echov1.Echo) {
	container.SecurityContext.ReadOnlyRootFilesystem = nil
	container.Ports = slices.DeleteFunc(container.Ports, func(p corev1.ContainerPort) bool {
		return p.Name == healthPortName && (p.ContainerPort == healthPort || p.ContainerPort == otherHealthPort)
	})
	container.Command = echo.Spec.Command
	container.Args = echo.Spec.Args
	setVariable(&container.Env, textVariable, escapeDollars(Text(echo)))
	setVariable(&container.Env, portVariable, strconv.Itoa(int(targetPort(echo))))
	ensure(&container.Lifecycle).PreStop = &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: preStopSeconds}}
	if !hasProbes(echo) {
		container.StartupProbe, container.ReadinessProbe, container.LivenessProbe = nil, nil, nil
		return
	}
	path, port := echo.Spec.ReadinessPath, intstr.FromString(containerPortName)
	mutateProbe(ensure(&container.StartupProbe), path, port, 2, 2)
	container.StartupProbe.FailureThreshold = startupSeconds / container.StartupProbe.PeriodSeconds
	mutateProbe(ensure(&container.ReadinessProbe), path, port, 2, 2)
	mutateProbe(ensure(&container.LivenessProbe), path, port, 10, 10)
}

// hasProbes reports whether the server has probes. The operator knows whether a custom server
// listens, and on which path, only if the user says so.
func hasProbes(echo *echov1.Echo) bool {
	return !isCustomServer(echo) || echo.Spec.ReadinessPath != ""
}

// setVariable sets an environment variable. It removes further entries with the name: the kubelet
// would use the last one.
func setVariable(variables *[]corev1.EnvVar, name, value string) {
	named := func(env corev1.EnvVar) bool { return env.Name == name }
	*ensureItem(variables, corev1.EnvVar{Name: name}, named) = corev1.EnvVar{Name: name, Value: value}
	i := slices.IndexFunc(*variables, named) + 1
	*variables = append((*variables)[:i], slices.DeleteFunc((*variables)[i:], named)...)
}

// escapeDollars escapes the text for the kubelet, which expands $(NAME) in arguments and
// variables and replaces $$ with $.
func escapeDollars(text string) string {
	return strings.ReplaceAll(text, "$", "$$")
}

func mutateProbe(probe *corev1.Probe, path string, port intstr.IntOrString, periodSeconds, timeoutSeconds int32) {
	probe.ProbeHandler = corev1.ProbeHandler{HTTPGet: probe.HTTPGet}
	get := ensure(&probe.HTTPGet)
	get.Path, get.Port, get.Scheme, get.Host = path, port, corev1.URISchemeHTTP, ""
	probe.InitialDelaySeconds = 0
	probe.PeriodSeconds = periodSeconds
	probe.TimeoutSeconds = timeoutSeconds
	probe.SuccessThreshold = 1
	probe.FailureThreshold = 3
}

// defaultServerResources are those of a server whose Echo sets none.
var defaultServerResources = echov1.Resources{Requests: quantities("10m", "16Mi"), Limits: quantities("100m", "128Mi")}

// setResources sets the declared resources, or the default if none are declared. The API server stores quantities with
// a precision of one thousandth, so setResources rounds to that.
func setResources(container *corev1.Container, declared, byDefault echov1.Resources) {
	if len(declared.Limits)+len(declared.Requests) == 0 {
		declared = byDefault
	}
	container.Resources.Limits = corev1.ResourceList(declared.Limits.DeepCopy())
	container.Resources.Requests = corev1.ResourceList(declared.Requests.DeepCopy())
	for _, list := range []corev1.ResourceList{container.Resources.Limits, container.Resources.Requests} {
		for name, quantity := range list {
			quantity.RoundUp(resource.Milli)
			list[name] = quantity
		}
	}
}

// Share saves memory in a cache of many Deployments: their largest values that are equal in most of them, or that occur
// twice in one, share memory. The object must not be changed afterwards.
func Share(object Object) {
	deployment, is := object.(*appsv1.Deployment)
	if !is {
		return
	}
	pod := &deployment.Spec.Template.Spec
	for i := range pod.TopologySpreadConstraints {
		share(&pod.TopologySpreadConstraints[i].LabelSelector, deployment.Spec.Selector)
	}
	for i := range pod.Containers {
		resources := &pod.Containers[i].Resources
		for _, common := range []echov1.Resources{defaultServerResources, defaultVerifierResources} {
			share(&resources.Limits, corev1.ResourceList(common.Limits))
			share(&resources.Requests, corev1.ResourceList(common.Requests))
		}
	}
}

// share replaces *value with shared if the two are equal.
func share[T any](value *T, shared T) {
	if equality.Semantic.DeepEqual(*value, shared) {
		*value = shared
	}
}

func quantities(cpu, memory string) map[corev1.ResourceName]resource.Quantity {
	return map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

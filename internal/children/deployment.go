package children

import (
	"cmp"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// A server starts within a second. Two minutes allow for a slow image pull.
	progressDeadlineSeconds int32 = 120

	// A pod counts as available after it has been ready for this long, because the nodes learn of its
	// endpoint later than the Deployment controller.
	minReadySeconds int32 = 2

	// A server without probes counts as available after it has run for this long, so a server
	// that crashes immediately never becomes available.
	unprobedReadySeconds int32 = 5

	// gracePeriodSeconds is the time that a server has to stop after SIGTERM.
	gracePeriodSeconds int64 = 30
)

// Deployment mutates the Deployment of the Echo.
func Deployment(deployment *appsv1.Deployment, echo *echov1.Echo, in Inputs) {
	spec := &deployment.Spec
	mutateWorkload(deployment, ensure(&spec.Selector), &spec.Template, echo, serverComponent, Selector(echo))
	spec.Replicas = new(echo.Spec.Replicas)
	spec.Paused = false
	spec.MinReadySeconds = minReadySeconds
	if !hasProbes(echo) {
		spec.MinReadySeconds = unprobedReadySeconds
	}
	spec.ProgressDeadlineSeconds = new(progressDeadlineSeconds)
	spec.RevisionHistoryLimit = ptr.To[int32](1)
	spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	rolling := ensure(&spec.Strategy.RollingUpdate)
	// All new pods start at the same time, so an edit takes as long with five pods as with one.
	rolling.MaxUnavailable, rolling.MaxSurge = new(intstr.FromInt32(0)), new(intstr.FromString("100%"))
	server := mutatePod(&spec.Template.Spec, echo, cmp.Or(echo.Spec.Image, in.ServerImage))
	spec.Template.Labels[ResponseLabel] = serverHash(echo, server)
	outlive(deployment, in.Route)
}

// mutateWorkload mutates what a server and a verifier have in common. The selected labels select the pods.
func mutateWorkload(object metav1.Object, selector *metav1.LabelSelector, template *corev1.PodTemplateSpec, echo *echov1.Echo,
	component string, selected labels.Set) {
	setMeta(object, echo, component)
	// The selector is immutable, so what admission added to it at the creation stays.
	selector.MatchLabels = labels.Merge(selector.MatchLabels, selected)
	mutatePodSettings(object, template, settingsOf(echo, component))
	// The selector also requires labels that are no longer in spec.pod.
	template.Labels = labels.Merge(selector.MatchLabels, template.Labels)
	template.Labels = labels.Merge(template.Labels, labels.Merge(selected, recommendedLabels(echo, component)))
}

// serverHash returns the value of ResponseLabel for a server: the hash of what determines its response. Another value
// restarts its pods.
func serverHash(echo *echov1.Echo, server *corev1.Container) string {
	parts := slices.Concat([]string{server.Image, strconv.Itoa(int(targetPort(echo))), strconv.Itoa(len(server.Command))}, server.Command, server.Args)
	if isCustomServer(echo) {
		parts = append(parts, Text(echo))
	}
	return hashOf(parts)
}

// mutatePod returns the container of the server.
func mutatePod(pod *corev1.PodSpec, echo *echov1.Echo, image string) *corev1.Container {
	mutatePodIsolation(pod)
	pod.TerminationGracePeriodSeconds = new(gracePeriodSeconds)
	mutatePodSecurity(ensure(&pod.SecurityContext), echo)
	mutateUnprivilegedPorts(pod.SecurityContext, echo)
	mutateNodes(pod, !isCustomServer(echo))
	for _, topologyKey := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
		mutateSpread(&pod.TopologySpreadConstraints, topologyKey, echo)
	}
	container := ensureItem(&pod.Containers, corev1.Container{Name: containerName}, func(c corev1.Container) bool { return c.Name == containerName })
	mutateContainer(container, echo, image)
	return container
}

// mutatePodIsolation isolates the pod from the API server, and from its node.
func mutatePodIsolation(pod *corev1.PodSpec) {
	pod.AutomountServiceAccountToken = new(false)
	pod.EnableServiceLinks = new(false)
	pod.HostNetwork, pod.HostPID, pod.HostIPC = false, false, false
}

// mutateSpread spreads the pods of one revision over zones or nodes, if possible. The key of a
// constraint is topologyKey and whenUnsatisfiable. If an external writer changed the latter, the
// selector identifies the operator's constraint.
func mutateSpread(constraints *[]corev1.TopologySpreadConstraint, topologyKey string, echo *echov1.Echo) {
	selector := &metav1.LabelSelector{MatchLabels: Selector(echo)}
	spread := func(c corev1.TopologySpreadConstraint) bool {
		return c.TopologyKey == topologyKey && c.WhenUnsatisfiable == corev1.ScheduleAnyway
	}
	if !slices.ContainsFunc(*constraints, spread) {
		spread = func(c corev1.TopologySpreadConstraint) bool {
			return c.TopologyKey == topologyKey && equality.Semantic.DeepEqual(c.LabelSelector, selector)
		}
	}
	constraint := ensureItem(constraints, corev1.TopologySpreadConstraint{TopologyKey: topologyKey}, spread)
	constraint.WhenUnsatisfiable = corev1.ScheduleAnyway
	constraint.MinDomains = nil // It is valid only with DoNotSchedule.
	constraint.MaxSkew = 1
	constraint.LabelSelector = selector
	constraint.MatchLabelKeys = []string{appsv1.DefaultDeploymentUniqueLabelKey}
}

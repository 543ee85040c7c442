package oracle

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Endpoints is every version of the pods of a namespace and of one of its Services. Its methods
// may be called concurrently.
type Endpoints struct {
	mu       sync.Mutex
	versions []endpointVersion
}

// endpointVersion is a version of a pod or of the Service.
type endpointVersion struct {
	number  uint64
	pod     *corev1.Pod
	service *corev1.Service
	deleted bool
}

// AddPod records a version of a pod, or its deletion.
func (e *Endpoints) AddPod(number uint64, pod *corev1.Pod, deleted bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions = append(e.versions, endpointVersion{number: number, pod: pod, deleted: deleted})
}

// AddService records a version of the Service.
func (e *Endpoints) AddService(number uint64, service *corev1.Service) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.versions = append(e.versions, endpointVersion{number: number, service: service})
}

// Check finds versions at which the Service had no endpoint any more, and endpoints
// whose port is not a port of the container.
func (e *Endpoints) Check(container string) (findings []error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	slices.SortStableFunc(e.versions, func(a, b endpointVersion) int { return cmp.Compare(a.number, b.number) })
	pods := map[types.UID]*corev1.Pod{}
	var service *corev1.Service
	served := false
	for _, version := range e.versions {
		switch {
		case version.service != nil:
			service = version.service
		case version.deleted:
			delete(pods, version.pod.UID)
		default:
			pods[version.pod.UID] = version.pod
		}
		if service == nil {
			continue
		}
		endpoints := 0
		for _, pod := range pods {
			port, found := endpointPort(service, pod)
			if !found {
				continue
			}
			endpoints++
			if !listens(pod, container, port) {
				findings = append(findings, Findingf(pod, "receives requests at port %d (resource version %d), want a port of container %s", port, version.number, container))
			}
		}
		if served && endpoints == 0 {
			findings = append(findings, Findingf(service, "has no endpoint (resource version %d), want at least one", version.number))
		}
		served = endpoints > 0
	}
	if len(findings) == 0 && !served {
		findings = append(findings, fmt.Errorf("endpoints: the Service has none after %d versions, want at least one", len(e.versions)))
	}
	return findings
}

// endpointPort returns the port at which a pod is an endpoint of the Service's first port, as the
// endpoint controller of Kubernetes determines it.
func endpointPort(service *corev1.Service, pod *corev1.Pod) (int32, bool) {
	if pod.DeletionTimestamp != nil || !isReady(pod) || len(service.Spec.Ports) == 0 ||
		!labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		return 0, false
	}
	target := service.Spec.Ports[0].TargetPort
	if target.Type == intstr.Int {
		return target.IntVal, true
	}
	return namedPort(pod, target.StrVal, service.Spec.Ports[0].Protocol)
}

// namedPort returns the first port of that name: of a container, or of an init container that keeps
// running.
func namedPort(pod *corev1.Pod, name string, protocol corev1.Protocol) (int32, bool) {
	containers := slices.DeleteFunc(slices.Clone(pod.Spec.InitContainers), func(c corev1.Container) bool {
		return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
	})
	for _, container := range append(slices.Clone(pod.Spec.Containers), containers...) {
		for _, port := range container.Ports {
			if port.Name == name && port.Protocol == protocol {
				return port.ContainerPort, true
			}
		}
	}
	return 0, false
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && metav1.ConditionStatus(c.Status) == metav1.ConditionTrue
	})
}

func listens(pod *corev1.Pod, container string, port int32) bool {
	return slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == container && slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort == port })
	})
}

package oracle

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// Workload is what the API server has of one Echo.
type Workload struct {
	Echo *echov1.Echo
	// Children are the objects with the name of a child, by kind.
	Children map[string]client.Object
	// Pods are all pods of the namespace.
	Pods []corev1.Pod
	// Rejected has the error with which the API server rejects the desired state of a child, by kind.
	Rejected map[string]error
}

// ErrNotRejected is part of a finding about an Echo that is not ready although clients receive the
// message. There is no finding if Rejected explains it.
var ErrNotRejected = errors.New("clients receive the message, and the API server accepts the desired state")

var (
	errNoService    = errors.New("there is no Service")
	errNoDeployment = errors.New("there is no Deployment")
	errNoEchoPort   = errors.New("the Service has no TCP port of the declared number that leads to a pod")
	errNotServed    = errors.New("the container does not have the declared command, args and variables")
)

// CheckStatus checks the status by what clients of the Echo observe: Ready only if all pods behind
// the Service return the declared message, Degraded with a message if that is prevented, and
// Overridden exactly if the operator accepted fields that differ from the desired state.
func (w Workload) CheckStatus() error {
	if err := CheckObserved(w.Echo); err != nil {
		return err
	}
	ready := meta.FindStatusCondition(w.Echo.Status.Conditions, echov1.ConditionReady)
	degraded := meta.FindStatusCondition(w.Echo.Status.Conditions, echov1.ConditionDegraded)
	if CheckReadyNow(w.Echo) != nil {
		switch {
		case degraded == nil || degraded.Status != metav1.ConditionTrue || degraded.Message == "":
			return Findingf(w.Echo, "not ready, want condition Degraded=True with a message, got %s; %s", describe(degraded), describe(ready))
		case w.CheckResponse() == nil && len(w.Rejected) == 0 && !w.responseFieldsDiffer() && w.controlled():
			return Findingf(w.Echo, "%w: want condition Ready=True, got %s", ErrNotRejected, describe(ready))
		}
		return nil
	}
	if err := w.CheckResponse(); err != nil {
		return Findingf(w.Echo, "clients do not receive the message: want condition Ready=False, got %s: %w", describe(ready), err)
	}
	return w.checkOverridden()
}

// checkOverridden checks that the condition Overridden names the fields that differ.
func (w Workload) checkOverridden() error {
	overridden := meta.FindStatusCondition(w.Echo.Status.Conditions, echov1.ConditionOverridden)
	isTrue := overridden != nil && overridden.Status == metav1.ConditionTrue
	different := false
	for _, kind := range slices.Sorted(maps.Keys(w.Children)) {
		fields := Differences(w.Children[kind], w.Echo)
		different = different || len(fields) > 0
		switch {
		case len(fields) > 0 && !isTrue:
			return Findingf(w.Echo, "%s differs in %v: want condition Overridden=True, got %s", kind, fields, describe(overridden))
		case len(fields) > 0:
			if err := w.checkNamed(kind, fields, overridden); err != nil {
				return err
			}
		}
	}
	if isTrue && !different {
		return Findingf(w.Echo, "no child differs from its desired state: want condition Overridden=False, got %s", describe(overridden))
	}
	return nil
}

// checkNamed checks that the status names the child, in the condition and in its record, and the
// fields that differ.
func (w Workload) checkNamed(kind string, fields []string, overridden *metav1.Condition) error {
	if !strings.Contains(overridden.Message, kind) {
		return Findingf(w.Echo, "%s differs in %v: want it named in the condition, got %s", kind, fields, describe(overridden))
	}
	for _, field := range fields {
		if !isOverridden(w.Echo, kind, field) {
			return Findingf(w.Echo, "%s differs in %s: want the field in status.overridden, got %+v", kind, field, w.Echo.Status.Overridden)
		}
	}
	return nil
}

// maxRecorded is how many fields of a child the status records.
const maxRecorded = 16

// isOverridden reports whether the status records the field of the child as overridden.
func isOverridden(echo *echov1.Echo, kind, field string) bool {
	return slices.ContainsFunc(echo.Status.Overridden, func(c echov1.OverriddenChild) bool {
		return c.Kind == kind && (len(c.Fields) >= maxRecorded ||
			slices.ContainsFunc(c.Fields, func(f string) bool { return isWithin(field, f) || isWithin(f, field) }))
	})
}

// isWithin reports whether a field is part of another. Notations of map keys differ.
func isWithin(field, of string) bool {
	plain := strings.NewReplacer("[", ".", "]", "", `"`, "", "'", "")
	field, of = plain.Replace(field), plain.Replace(of)
	return field == of || strings.HasPrefix(field, of+".")
}

// responseFieldsDiffer reports whether a field that determines the response differs.
func (w Workload) responseFieldsDiffer() bool {
	for kind, child := range w.Children {
		if slices.ContainsFunc(Differences(child, w.Echo), kinds.ByName(kind).DeterminesResponse) {
			return true
		}
	}
	return false
}

// controlled reports whether the Echo controls all of its children.
func (w Workload) controlled() bool {
	for _, child := range w.Children {
		if !metav1.IsControlledBy(child, w.Echo) || child.GetDeletionTimestamp() != nil {
			return false
		}
	}
	return true
}

// CheckResponse checks that clients of the Service receive the declared message: every ready pod that
// the Service selects serves it at the port to which the Service leads, and there are as many as
// declared.
func (w Workload) CheckResponse() error {
	service, _ := w.Children["Service"].(*corev1.Service)
	deployment, _ := w.Children["Deployment"].(*appsv1.Deployment)
	switch {
	case service == nil || service.DeletionTimestamp != nil:
		return errNoService
	case deployment == nil || deployment.DeletionTimestamp != nil:
		return errNoDeployment
	}
	want := desired(&appsv1.Deployment{}, w.Echo).Spec.Template.Spec.Containers[0]
	serving := 0
	for i := range w.Pods {
		pod := &w.Pods[i]
		selected := len(service.Spec.Selector) > 0 && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels))
		if !selected || pod.DeletionTimestamp != nil || !isReady(pod) {
			continue
		}
		if err := checkServes(pod, want); err != nil {
			return fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		if port := portOf(service, pod, w.Echo.Spec.Port); port != want.Ports[0].ContainerPort {
			return fmt.Errorf("pod %s: endpoint has port %d, want %d: %w", pod.Name, port, want.Ports[0].ContainerPort, errNoEchoPort)
		}
		serving++
	}
	if serving < int(w.Echo.Spec.Replicas) {
		return fmt.Errorf("endpoints of Service %s: %d, want %d", service.Name, serving, w.Echo.Spec.Replicas)
	}
	return nil
}

// checkServes checks that the pod has a container that returns the message.
func checkServes(pod *corev1.Pod, want corev1.Container) error {
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == want.Name })
	if i < 0 {
		return errNotServed
	}
	got := pod.Spec.Containers[i]
	for _, variable := range want.Env {
		if !slices.ContainsFunc(got.Env, func(v corev1.EnvVar) bool { return equality.Semantic.DeepEqual(v, variable) }) {
			return errNotServed
		}
	}
	if !equality.Semantic.DeepEqual(got.Command, want.Command) || !equality.Semantic.DeepEqual(got.Args, want.Args) {
		return errNotServed
	}
	return nil
}

// portOf returns the port of the pod to which the Service's port of that number leads, or 0.
func portOf(service *corev1.Service, pod *corev1.Pod, number int32) int32 {
	for _, port := range service.Spec.Ports {
		if port.Port != number || port.Protocol != corev1.ProtocolTCP || service.Spec.Type == corev1.ServiceTypeExternalName {
			continue
		}
		if port.TargetPort.Type == intstr.Int {
			return port.TargetPort.IntVal
		}
		found, _ := namedPort(pod, port.TargetPort.StrVal, port.Protocol)
		return found
	}
	return 0
}

// Differences returns the fields of a child that the operator owns and that differ from the desired
// state of its Echo.
func Differences(child client.Object, echo *echov1.Echo) (fields []string) {
	want := child.DeepCopyObject().(client.Object)
	kinds.Mutate(want, echo)
	if equality.Semantic.DeepEqual(want, child) {
		return nil
	}
	return differences(kinds.JSON(want), kinds.JSON(child), nil)
}

// item returns the step to an item of a list: by its name, if it has one, or by its index.
func item(want, got any, index int) kinds.Step {
	a, _ := want.(map[string]any)
	b, _ := got.(map[string]any)
	if name, is := b["name"].(string); is && a["name"] == name {
		return kinds.Step{Name: name, IsKey: true}
	}
	return kinds.Step{Index: index}
}

// differences returns the paths at which two JSON values differ.
func differences(want, got any, path kinds.Field) (fields []string) {
	wantMap, isMap := want.(map[string]any)
	gotMap, isBoth := got.(map[string]any)
	if isMap && isBoth {
		names := maps.Clone(wantMap)
		maps.Copy(names, gotMap)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			fields = append(fields, differences(wantMap[name], gotMap[name], path.Append(kinds.Step{Name: name, IsKey: strings.ContainsAny(name, "./")}))...)
		}
		return fields
	}
	wantList, isList := want.([]any)
	gotList, isBoth := got.([]any)
	if isList && isBoth && len(wantList) == len(gotList) {
		for i := range wantList {
			fields = append(fields, differences(wantList[i], gotList[i], path.Append(item(wantList[i], gotList[i], i)))...)
		}
		return fields
	}
	if !equality.Semantic.DeepEqual(want, got) {
		fields = append(fields, path.String())
	}
	return fields
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

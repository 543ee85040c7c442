package oracle

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func endpointPod(uid types.UID, portName string, ready corev1.ConditionStatus) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: string(uid), UID: uid, Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "sidecar", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 1}}},
			{Name: "echo", Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: 5678}}},
		}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
	}
}

func endpointService(target intstr.IntOrString) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "echo-one"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "a"}, Ports: []corev1.ServicePort{{TargetPort: target}}},
	}
}

func TestEndpointsCheck(t *testing.T) {
	named, number := endpointService(intstr.FromString("kkloud-echo")), endpointService(intstr.FromInt32(5678))
	stopping := endpointPod("old", "kkloud-echo", corev1.ConditionTrue)
	stopping.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	for name, test := range map[string]struct {
		record func(*Endpoints)
		want   []string
	}{
		"the next pod is ready before the last one stops": {record: func(e *Endpoints) {
			e.AddService(1, named)
			e.AddPod(2, endpointPod("old", "kkloud-echo", corev1.ConditionTrue), false)
			e.AddPod(4, stopping, false) // Recorded before version 3.
			e.AddPod(3, endpointPod("new", "kkloud-echo", corev1.ConditionTrue), false)
			e.AddPod(5, stopping, true)
		}},
		"the last pod stops first": {record: func(e *Endpoints) {
			e.AddService(1, named)
			e.AddPod(2, endpointPod("old", "kkloud-echo", corev1.ConditionTrue), false)
			e.AddPod(3, stopping, false)
			e.AddPod(4, endpointPod("new", "kkloud-echo", corev1.ConditionFalse), false)
			e.AddPod(5, endpointPod("new", "kkloud-echo", corev1.ConditionTrue), false)
		}, want: []string{"Service echo-one: has no endpoint (resource version 3)"}},
		"the Service refers to a name that no pod has": {record: func(e *Endpoints) {
			e.AddService(1, number)
			e.AddPod(2, endpointPod("old", "old-name", corev1.ConditionTrue), false)
			e.AddService(3, named)
			e.AddService(4, number)
		}, want: []string{"Service echo-one: has no endpoint (resource version 3)"}},
		"the Service refers to a name that a sidecar has, too": {record: func(e *Endpoints) {
			e.AddService(1, endpointService(intstr.FromString("http")))
			e.AddPod(2, endpointPod("one", "http", corev1.ConditionTrue), false)
		}, want: []string{"Pod one: receives requests at port 1 (resource version 2)"}},
		"no pod": {record: func(e *Endpoints) { e.AddService(1, named) }, want: []string{"endpoints: the Service has none"}},
	} {
		t.Run(name, func(t *testing.T) {
			var endpoints Endpoints
			test.record(&endpoints)
			expect(t, endpoints.Check("echo"), test.want...)
		})
	}
}

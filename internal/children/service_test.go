package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// During an upgrade from 0.4.0, requests reach the pods of both versions by the port's number.
func TestTargetPortChangesToTheNewNameAfterTheRollout(t *testing.T) {
	const byName, byNumber = containerPortName, "5678"
	reported := func(progressing metav1.ConditionStatus, reason string, generation int64, types ...string) func(*echov1.Echo) {
		return func(echo *echov1.Echo) {
			echo.Generation = 3
			for _, condition := range types {
				meta.SetStatusCondition(&echo.Status.Conditions, metav1.Condition{
					Type: condition, Status: progressing, Reason: reason, ObservedGeneration: generation,
				})
			}
		}
	}
	const progressing, overridden = echov1.ConditionProgressing, echov1.ConditionOverridden
	for name, c := range map[string]struct {
		live, want string
		echo       *echov1.Echo
	}{
		"new Service":                {"", byName, newEcho()},
		"steady state":               {byName, byName, newEcho()},
		"old name, no status":        {"http", byNumber, newEcho()},
		"old name, status of 0.4.0":  {"http", byNumber, newEcho(reported("False", echov1.ReasonRolledOut, 3, progressing))},
		"number, rollout in flight":  {"5678", byNumber, newEcho(reported("True", echov1.ReasonRollingOut, 3, progressing, overridden))},
		"number, failed rollout":     {"5678", byNumber, newEcho(reported("False", echov1.ReasonPodsNotReady, 3, progressing, overridden))},
		"number, earlier generation": {"5678", byNumber, newEcho(reported("False", echov1.ReasonRolledOut, 2, progressing, overridden))},
		"number, only Overridden":    {"5678", byNumber, newEcho(reported("False", echov1.ReasonRolledOut, 3, overridden))},
		"number, rolled out":         {"5678", byName, newEcho(reported("False", echov1.ReasonRolledOut, 3, progressing, overridden))},
		"another number":             {"81", byNumber, newEcho()},
	} {
		t.Run(name, func(t *testing.T) {
			service := &corev1.Service{}
			if c.live != "" {
				service.ResourceVersion = "1"
				service.Spec.Ports = []corev1.ServicePort{{Name: "http", TargetPort: intstr.Parse(c.live)}}
			}
			for range 2 {
				Service(service, c.echo)
				if got := service.Spec.Ports[0].TargetPort; got != intstr.Parse(c.want) {
					t.Errorf("targetPort = %v, want %s", &got, c.want)
				}
			}
		})
	}
}

func TestServiceHasOnePortWithItsAppProtocolAndNodePort(t *testing.T) {
	for name, live := range map[string][]corev1.ServicePort{
		"another name":  {{Name: "web", AppProtocol: new("http"), NodePort: 30080}},
		"another port":  {{Name: "http", AppProtocol: new("http"), NodePort: 30080, Port: 81, Protocol: corev1.ProtocolUDP}},
		"several ports": {{Name: "metrics", Port: 9090}, {Name: "http", AppProtocol: new("http"), NodePort: 30080}},
	} {
		t.Run(name, func(t *testing.T) {
			service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: live}}
			Service(service, newEcho())
			equal(t, service.Spec.Ports, []corev1.ServicePort{{
				Name: "http", AppProtocol: new("http"), NodePort: 30080,
				Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(containerPortName),
			}})
		})
	}
}

func TestContainerPortReplacesTheOldName(t *testing.T) {
	const target = 5678
	ours := corev1.ContainerPort{Name: containerPortName, ContainerPort: target, Protocol: corev1.ProtocolTCP}
	metrics := corev1.ContainerPort{Name: "metrics", ContainerPort: 9090}
	for name, c := range map[string]struct{ live, want []corev1.ContainerPort }{
		"none": {nil, []corev1.ContainerPort{ours}},
		"old name": {
			[]corev1.ContainerPort{metrics, {Name: "http", ContainerPort: 80, HostPort: 80, HostIP: "127.0.0.1"}},
			[]corev1.ContainerPort{metrics, ours},
		},
		"both names, same number": {
			[]corev1.ContainerPort{{Name: "http", ContainerPort: target}, ours, metrics},
			[]corev1.ContainerPort{ours, metrics},
		},
		"both names, number before the change": {
			[]corev1.ContainerPort{{Name: containerPortName, ContainerPort: 80}, {Name: "http", ContainerPort: 80}},
			[]corev1.ContainerPort{ours},
		},
		"another port with the old name": {
			[]corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, ours},
			[]corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, ours},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ports := c.live
			for range 2 {
				mutatePorts(&ports, target)
				equal(t, ports, c.want)
			}
		})
	}
}

func TestPortNameOfAnEarlierVersionIsReplaced(t *testing.T) {
	echo := newEcho()
	objects := desiredState(echo)
	want := objects.deepCopy()
	objects.pod().Containers[0].Ports[0].Name = "http"
	objects.mutate(echo)
	equal(t, objects, want)
}

package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// OpenShift's SCC restricted-v2 rejects users and groups that it did not assign.
func TestPodsSetNoUserAndNoGroup(t *testing.T) {
	objects := desiredState(newEcho(ownServer))
	want := objects.deepCopy()
	for _, pod := range []*corev1.PodSpec{objects.pod(), &objects.verifier().Spec.Template.Spec} {
		pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup = new(int64(65532)), new(int64(7))
		container := pod.Containers[0].SecurityContext
		container.RunAsUser, container.RunAsGroup = new(int64(0)), new(int64(7))
	}
	objects.mutate(newEcho(ownServer))
	equal(t, objects, want)
}

func TestDeclaredUserIsThatOfAllPods(t *testing.T) {
	unset := newEcho(ownServer, withVerify)
	declared := newEcho(ownServer, withVerify, withPod(echov1.PodSettings{RunAsUser: 65532}))
	objects := desiredState(unset)
	before := objects.deepCopy()

	objects.mutate(declared)
	want := before.deepCopy()
	want.pod().SecurityContext.RunAsUser = new(int64(65532))
	want.verifier().Spec.Template.Spec.SecurityContext.RunAsUser = new(int64(65532))
	want.verifierSet().Spec.Template.Spec.SecurityContext.RunAsUser = new(int64(65532))
	equal(t, objects, want)

	objects.pod().SecurityContext.RunAsUser = new(int64(7))
	objects.mutate(declared)
	equal(t, objects, want)

	objects.mutate(unset)
	equal(t, objects, before)
}

func TestWeakenedSecurityIsReverted(t *testing.T) {
	echo := newEcho()
	objects := desiredState(echo)
	want := objects.deepCopy()
	pod := objects.pod()
	pod.HostNetwork, pod.HostPID, pod.HostIPC = true, true, true
	pod.SecurityContext.RunAsNonRoot, pod.SecurityContext.RunAsUser = new(false), new(int64(0))
	security := pod.Containers[0].SecurityContext
	security.AllowPrivilegeEscalation, security.ReadOnlyRootFilesystem = new(true), new(false)
	security.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}
	pod.Containers[0].Ports[0].HostPort = 80
	pod.Containers[0].ReadinessProbe.HTTPGet.Host = "example.com"
	pod.Containers[0].ReadinessProbe.InitialDelaySeconds = 3600
	objects.mutate(echo)
	equal(t, objects, want)

	security.Privileged, security.RunAsNonRoot = new(true), new(false)
	objects.mutate(echo)
	equal(t, objects, want)
}

func TestContainerSecurityIsOnlyTightened(t *testing.T) {
	tightened := &corev1.SecurityContext{}
	mutateContainerSecurity(tightened)
	loose := &corev1.SecurityContext{
		Privileged: new(true), RunAsNonRoot: new(false), AllowPrivilegeEscalation: new(true), ReadOnlyRootFilesystem: new(false),
		Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_RAW"}, Drop: []corev1.Capability{"CHOWN"}},
	}
	mutateContainerSecurity(loose)
	equal(t, loose, tightened)

	stays := &corev1.SecurityContext{
		Privileged: new(false), RunAsNonRoot: new(true),
		SELinuxOptions: &corev1.SELinuxOptions{Level: "s0:c1,c2"},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	want := stays.DeepCopy()
	want.AllowPrivilegeEscalation, want.ReadOnlyRootFilesystem, want.Capabilities =
		tightened.AllowPrivilegeEscalation, tightened.ReadOnlyRootFilesystem, tightened.Capabilities
	mutateContainerSecurity(stays)
	equal(t, stays, want)
}

func TestSysctlIsSetForPortsBelow1024(t *testing.T) {
	other, ours := corev1.Sysctl{Name: "net.ipv4.ping_group_range", Value: "0 1"}, corev1.Sysctl{Name: unprivilegedPorts, Value: "0"}
	security := &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{other}}
	for _, c := range []struct {
		port int32
		want []corev1.Sysctl
	}{{1024, []corev1.Sysctl{other}}, {1023, []corev1.Sysctl{other, ours}}, {80, []corev1.Sysctl{other, ours}}, {5678, []corev1.Sysctl{other}}} {
		mutateUnprivilegedPorts(security, newEcho(func(e *echov1.Echo) { e.Spec.TargetPort = c.port }))
		equal(t, security.Sysctls, c.want)
	}
}

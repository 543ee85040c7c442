package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

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

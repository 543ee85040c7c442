package children

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// OpenShift's SCC restricted-v2 rejects users and groups that it did not assign.
func TestUserIsSetOnlyForAnImageThatRunsAsRoot(t *testing.T) {
	other := newEcho(func(e *echov1.Echo) { e.Spec.Image = "docker.io/library/other:1" })
	for name, c := range map[string]struct {
		noted string
		echo  *echov1.Echo
		want  bool
	}{
		"no image noted":       {"", newEcho(), false},
		"default image":        {defaultImage, newEcho(), true},
		"image of the Echo":    {other.Spec.Image, other, true},
		"another image noted":  {"docker.io/library/busybox:1", newEcho(), false},
		"Echo has a new image": {defaultImage, other, false},
	} {
		t.Run(name, func(t *testing.T) {
			all := desiredState(newEcho(ownServer))
			deployment, pod := all.deployment(), all.pod()
			if c.noted != "" {
				deployment.Annotations = map[string]string{RootImageAnnotation: c.noted}
			}
			pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup = new(nonRootUser), new(int64(7))
			container := pod.Containers[0].SecurityContext
			container.RunAsUser, container.RunAsGroup = new(int64(0)), new(nonRootUser)
			Deployment(deployment, c.echo, defaultImage)
			var want *int64
			if c.want {
				want = new(nonRootUser)
			}
			equal(t, []*int64{pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup}, []*int64{want, want})
			if container.RunAsUser != nil || container.RunAsGroup != nil {
				t.Errorf("container securityContext = %v, want no user and no group", container)
			}
		})
	}
}

func TestRootImageIsNotedOnce(t *testing.T) {
	echo := newEcho(ownServer)
	objects := desiredState(echo)
	if security := objects.pod().SecurityContext; security.RunAsUser != nil || security.RunAsGroup != nil {
		t.Errorf("user = %v, group = %v, want none", security.RunAsUser, security.RunAsGroup)
	}
	if !NoteRootImage(objects.deployment()) || NoteRootImage(objects.deployment()) {
		t.Error("NoteRootImage: want true for the first call, and false for the second")
	}
	objects.mutate(echo)
	if security := objects.pod().SecurityContext; *security.RunAsUser != nonRootUser || *security.RunAsGroup != nonRootUser {
		t.Errorf("user = %d, group = %d, want %d", *security.RunAsUser, *security.RunAsGroup, nonRootUser)
	}
	echo.Spec.Image = "docker.io/library/other:1"
	objects.mutate(echo)
	if security := objects.pod().SecurityContext; security.RunAsUser != nil || security.RunAsGroup != nil {
		t.Errorf("user = %v, group = %v of another image, want none", security.RunAsUser, security.RunAsGroup)
	}
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

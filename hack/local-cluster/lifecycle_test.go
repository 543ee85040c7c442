//go:build linux && lifecycle

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// binary is the program under test. The programs that it runs are in the same directory.
const binary = "../../bin/local-cluster"

// TestLifecycle requires root and the built programs, and takes about two minutes. It
// can run while another cluster of the same clone runs.
func TestLifecycle(t *testing.T) {
	// The modules stay loaded, and br_netfilter adds a setting to the host.
	if err := loadModules(modprobe, kernelModules); err != nil {
		t.Fatal(err)
	}
	before := hostState(t)
	first, second := newFixture(t), newFixture(t)

	first.mustRun("up")
	if output := first.mustRun("up"); !strings.Contains(output, "already running") {
		t.Errorf("second up: output = %q, want it to contain %q", output, "already running")
	}
	second.mustRun("up")

	t.Log("the API server has permission to read logs from the kubelet")
	first.mustRun("exec", "--", "kubectl", "logs", "--namespace=kube-system", "deployment/coredns")

	t.Log("down removes a cluster whose state directory is missing, and leaves the other cluster running")
	second.loseState()
	second.mustRun("down")
	first.mustRun("status")
	if output := second.mustRun("down"); !strings.Contains(output, "not running") {
		t.Errorf("second down: output = %q, want it to contain %q", output, "not running")
	}

	t.Log("status reports a component that exits, and up recreates the cluster")
	status, err := first.dir.ReadStatus()
	if err != nil {
		t.Fatal(err)
	}
	kubelet := slices.IndexFunc(status.Components, func(c state.Component) bool { return c.Name == "kubelet" })
	first.mustRun("exec", "--", "sh", "-c", fmt.Sprintf("kill -9 %d", status.Components[kubelet].PID))
	first.waitForExit("kubelet")
	if output, err := first.run("status"); err == nil {
		t.Errorf("status after the kubelet exited: exit code 0, want 1; output:\n%s", output)
	}
	if output := first.mustRun("up"); !strings.Contains(output, "recreating the cluster") {
		t.Errorf("up after the kubelet exited: output = %q, want it to contain %q", output, "recreating the cluster")
	}

	t.Log("down removes what remains after init is killed")
	pid, err := sandbox.Find(first.dir)
	if err != nil || pid == 0 {
		t.Fatalf("sandbox.Find() = %v, %v, want a process", pid, err)
	}
	sandboxNamespaces := namespaces(t, strconv.Itoa(pid))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.mustRun("down")

	for _, namespace := range namespaces(t, "[0-9]*") {
		if slices.Contains(sandboxNamespaces, namespace) {
			t.Errorf("after down, a process is in namespace %s of the cluster", namespace)
		}
	}
	after := hostState(t)
	for _, line := range missing(after, before) {
		t.Errorf("after the test, the host is without: %s", line)
	}
	for _, line := range missing(before, after) {
		t.Errorf("after the test, the host also has: %s", line)
	}
}

// fixture is one cluster with its own state directory.
type fixture struct {
	t   *testing.T
	dir state.Dir
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{t: t, dir: state.Dir(filepath.Join(t.TempDir(), "cluster"))}
	t.Cleanup(func() { f.mustRun("down") })
	return f
}

func (f fixture) run(args ...string) (string, error) {
	begin := time.Now()
	output, err := exec.Command(binary, append([]string{"-state", string(f.dir)}, args...)...).CombinedOutput()
	f.t.Logf("%s: %.1fs", args[0], time.Since(begin).Seconds())
	return string(output), err
}

func (f fixture) mustRun(args ...string) string {
	f.t.Helper()
	output, err := f.run(args...)
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

func (f fixture) waitForExit(component string) {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(pollInterval) {
		status, err := f.dir.ReadStatus()
		if err != nil {
			f.t.Fatal(err)
		}
		if exited := status.FirstExited(); exited != nil && exited.Name == component {
			return
		}
	}
	f.t.Fatalf("status of component %s is still running 10s after it was killed, want exited", component)
}

// loseState renames the state directory. Deleting it would race with the cluster,
// which still writes to it; down behaves the same in both cases.
func (f fixture) loseState() {
	f.t.Helper()
	if err := os.Rename(string(f.dir), string(f.dir)+".lost"); err != nil {
		f.t.Fatal(err)
	}
}

// namespaces returns the namespaces of the processes whose PIDs match a pattern.
func namespaces(t *testing.T, pids string) []string {
	t.Helper()
	var all []string
	for _, path := range list(t, "/proc/"+pids+"/ns/pid", "/proc/"+pids+"/ns/net", "/proc/"+pids+"/ns/mnt") {
		namespace, err := os.Readlink(path)
		stat, statErr := os.ReadFile(filepath.Join(filepath.Dir(path), "../stat"))
		hasExited := err != nil || statErr != nil || bytes.Contains(stat, []byte(") Z "))
		if !hasExited {
			all = append(all, namespace)
		}
	}
	return all
}

// hostState returns what a cluster could change on the host, as lines.
func hostState(t *testing.T) []string {
	t.Helper()
	const script = `
		ip -oneline link
		sed "s/^/mount: /" /proc/self/mounts
		iptables-save | sed "/^#/d" # The comments contain the time of day.
		cd /proc/sys
		grep . kernel/panic kernel/panic_on_oops vm/overcommit_memory net/ipv4/ip_forward net/bridge/bridge-nf-call-iptables`
	output, err := exec.Command("sh", "-ec", script).Output()
	if err != nil {
		t.Fatalf("read the state of the host: %v", err)
	}
	return append(strings.Split(string(output), "\n"), list(t, "/sys/fs/cgroup/local-cluster-*", "/sys/fs/cgroup/*/local-cluster-*",
		"/etc/cni", "/etc/kubernetes", "/opt/*", "/run/containerd*", "/run/netns", "/usr/libexec/kubernetes",
		"/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods")...)
}

// missing returns the lines of all that are not in some.
func missing(some, all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(line string) bool { return slices.Contains(some, line) })
}

func list(t *testing.T, patterns ...string) []string {
	t.Helper()
	var all []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

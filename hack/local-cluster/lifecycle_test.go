//go:build linux && lifecycle

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

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
	before := takeSnapshot(t)
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
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.mustRun("down")

	after := takeSnapshot(t)
	for aspect := range before {
		for _, line := range missing(after[aspect], before[aspect]) {
			// Other programs of the host may exit during the test, which removes their namespaces.
			if aspect != "namespaces" {
				t.Errorf("%s of the host: %s is missing, want the same as before the test", aspect, line)
			}
		}
		for _, line := range missing(before[aspect], after[aspect]) {
			t.Errorf("%s of the host: found new %s, want the same as before the test", aspect, line)
		}
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

// snapshot maps each aspect of the host that a cluster could change to its lines.
type snapshot map[string][]string

func takeSnapshot(t *testing.T) snapshot {
	t.Helper()
	return snapshot{
		"interfaces":     interfaces(t),
		"mounts":         readAll(t, "/proc/self/mounts"),
		"firewall rules": firewall(t),
		"cgroups":        list(t, "/sys/fs/cgroup/local-cluster-*", "/sys/fs/cgroup/*/local-cluster-*"),
		"namespaces":     namespaces(t),
		"settings": readAll(t, "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops", "/proc/sys/vm/overcommit_memory",
			"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/bridge/bridge-nf-call-iptables"),
		"well-known paths": list(t, "/etc/cni", "/etc/kubernetes", "/opt/*", "/run/containerd*", "/run/netns",
			"/usr/libexec/kubernetes", "/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"),
	}
}

// missing returns the lines of all that are not in some.
func missing(some, all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(line string) bool { return slices.Contains(some, line) })
}

func interfaces(t *testing.T) []string {
	t.Helper()
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range interfaces {
		all = append(all, fmt.Sprintf("%+v", one))
	}
	return all
}

// firewall returns the rules without the comments, which contain the time of day.
func firewall(t *testing.T) []string {
	t.Helper()
	output, err := exec.Command("iptables-save").Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(output), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "#")
	})
}

// namespaces lists the namespaces of all processes: a process left behind in a sandbox
// is in a namespace that did not exist before the test. A zombie that the host's init
// has not reaped yet is in no namespace. The list excludes pods of a cluster that runs
// at the same time as this test, because such pods start and stop independently of it.
func namespaces(t *testing.T) []string {
	t.Helper()
	processes, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, process := range processes {
		namespaces, err := process.Namespaces()
		// The process may have exited.
		if err != nil || inOtherCluster(t, process) {
			continue
		}
		for _, kind := range []string{"mnt", "net"} {
			namespace := fmt.Sprintf("%s:%d", kind, namespaces[kind].Inode)
			if !slices.Contains(all, namespace) {
				all = append(all, namespace)
			}
		}
	}
	return all
}

// inOtherCluster reports whether the process descends from the init of a cluster that
// this test did not start. No descendant outlives that init.
func inOtherCluster(t *testing.T, process procfs.Proc) bool {
	t.Helper()
	for {
		args, err := process.CmdLine()
		if err != nil {
			return false
		}
		if len(args) > 2 && args[0] == "local-cluster" && args[1] == sandbox.InitCommand {
			return !strings.Contains(args[2], t.Name())
		}
		stat, err := process.Stat()
		if err != nil || stat.PPID == 0 {
			return false
		}
		if process, err = procfs.NewProc(stat.PPID); err != nil {
			return false
		}
	}
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

func readAll(t *testing.T, paths ...string) []string {
	t.Helper()
	var all []string
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			all = append(all, path+": "+strings.TrimSpace(line))
		}
	}
	return all
}

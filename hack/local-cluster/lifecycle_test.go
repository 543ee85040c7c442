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

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/jail"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// binary is the program under test, with all that it runs beside it.
const binary = "../../bin/local-cluster"

// TestLifecycle needs root, the built programs and about two minutes. It may run
// beside a cluster of the same clone.
func TestLifecycle(t *testing.T) {
	before := takeSnapshot(t)
	first, second := newFixture(t), newFixture(t)

	first.mustRun("up")
	if output := first.mustRun("up"); !strings.Contains(output, "already running") {
		t.Errorf("the second up says %q", output)
	}
	second.mustRun("up")

	t.Log("one goes, although its state directory is lost; the other stays")
	second.loseState()
	second.mustRun("down")
	first.mustRun("status")
	if output := second.mustRun("down"); !strings.Contains(output, "not running") {
		t.Errorf("the second down says %q", output)
	}

	t.Log("a component dies: status tells, up starts over")
	status, err := first.dir.ReadStatus()
	if err != nil {
		t.Fatal(err)
	}
	kubelet := slices.IndexFunc(status.Components, func(c state.Component) bool { return c.Name == "kubelet" })
	first.mustRun("exec", "--", "sh", "-c", fmt.Sprintf("kill -9 %d", status.Components[kubelet].PID))
	first.awaitDead("kubelet")
	if output, err := first.run("status"); err == nil {
		t.Errorf("status is content with a dead kubelet:\n%s", output)
	}
	if output := first.mustRun("up"); !strings.Contains(output, "starting over") {
		t.Errorf("up after the kubelet's death says %q", output)
	}

	t.Log("the init dies: down has the rest to do")
	process, err := jail.Find(first.dir)
	if err != nil || process == nil {
		t.Fatalf("find the jail: %v, %v", process, err)
	}
	defer process.Close()
	if err := syscall.Kill(process.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	first.mustRun("down")

	after := takeSnapshot(t)
	for aspect := range before {
		for _, line := range missing(after[aspect], before[aspect]) {
			// Programs of the host end meanwhile, and namespaces of their own with them.
			if aspect != "namespaces" {
				t.Errorf("%s: the host has lost %s", aspect, line)
			}
		}
		for _, line := range missing(before[aspect], after[aspect]) {
			t.Errorf("%s: the host has got %s", aspect, line)
		}
	}
}

// fixture is one cluster with a state directory of its own.
type fixture struct {
	t   *testing.T
	dir state.Dir
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	dir, err := state.Abs(filepath.Join(t.TempDir(), "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{t: t, dir: dir}
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

func (f fixture) awaitDead(component string) {
	f.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(interval) {
		status, err := f.dir.ReadStatus()
		if err != nil {
			f.t.Fatal(err)
		}
		if dead, found := status.Dead(); found && dead.Name == component {
			return
		}
	}
	f.t.Fatalf("the death of %s goes unnoticed", component)
}

// loseState takes the state directory away. It is moved and not deleted, because
// the cluster goes on writing to it; for down there is no difference.
func (f fixture) loseState() {
	f.t.Helper()
	if err := os.Rename(string(f.dir), string(f.dir)+".lost"); err != nil {
		f.t.Fatal(err)
	}
}

// snapshot is what a cluster could change about the host, by aspect: lines.
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
		"well-known places": list(t, "/etc/cni", "/etc/kubernetes", "/opt/*", "/run/containerd*", "/run/netns",
			"/usr/libexec/kubernetes", "/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"),
	}
}

// missing returns the lines of all that some lacks.
func missing(some, all []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(line string) bool { return slices.Contains(some, line) })
}

func interfaces(t *testing.T) []string {
	t.Helper()
	found, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range found {
		all = append(all, fmt.Sprintf("%+v", one))
	}
	return all
}

// firewall is the rules without the comments, which hold the time of the day.
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

// namespaces lists those that any process is in: a process left behind in a jail
// shows by being in one that was not there before. A zombie that the host's init
// has yet to reap is in none of these any more. Pods of a cluster that runs beside
// this test come and go meanwhile, and do not count.
func namespaces(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, link := range list(t, "/proc/[0-9]*/ns/mnt", "/proc/[0-9]*/ns/net") {
		// A process may end while it is looked at.
		target, err := os.Readlink(link)
		if err == nil && !slices.Contains(all, target) && !ofOtherCluster(t, strings.Split(link, "/")[2]) {
			all = append(all, target)
		}
	}
	return all
}

// ofOtherCluster tells whether the process descends from the init of a cluster that
// is not this test's. What that init starts cannot outlive it.
func ofOtherCluster(t *testing.T, pid string) bool {
	t.Helper()
	for pid != "0" {
		command, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil {
			return false
		}
		if args := strings.Split(string(command), "\x00"); len(args) > 1 && args[1] == "init" && strings.Contains(args[0], "local-cluster") {
			return !strings.Contains(string(command), t.Name())
		}
		status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
		if err != nil {
			return false
		}
		_, rest, _ := strings.Cut(string(status), "\nPPid:\t")
		pid, _, _ = strings.Cut(rest, "\n")
		if pid == "" {
			return false
		}
	}
	return false
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

//go:build linux

package jail

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
)

// Run runs a command inside the jail, in the caller's working directory and with
// its standard streams, and returns the command's exit code.
func (p *Process) Run(args []string) (int, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("find the working directory: %w", err)
	}
	// Namespaces are a thread's: the command must be forked by the very thread
	// that entered them, and that thread must never run anything else again.
	runtime.LockOSThread()
	// A mount namespace can only be entered by a thread that shares its root and
	// working directories with no other.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("detach the thread: %w", err)
	}
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	if err := unix.Setns(p.fd, namespaces); err != nil {
		return 0, fmt.Errorf("enter the jail: %w", err)
	}

	if err := os.Setenv("PATH", node.Path); err != nil {
		return 0, fmt.Errorf("set the search path: %w", err)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = cwd
	cmd.Env = append(os.Environ(), "KUBECONFIG="+node.AdminKubeconfig)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("run %s: %w", args[0], err)
	}
	go relaySignals(cmd.Process)
	// A command that fails is its own business; its exit code is the answer.
	_ = cmd.Wait()
	return exitCode(cmd.ProcessState), nil
}

// relaySignals leaves the end to the command: what asks us to stop is handed on.
// An interrupt needs no handing on, the terminal sends it to both.
func relaySignals(process *os.Process) {
	signal.Ignore(syscall.SIGINT)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	for sig := range signals {
		// The command may just have ended, and then there is nobody to tell.
		_ = process.Signal(sig)
	}
}

// exitCode follows the shells' convention for a command that a signal ended.
func exitCode(ended *os.ProcessState) int {
	if status := ended.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return ended.ExitCode()
}

//go:build linux

package sandbox

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

// Run runs a command inside the sandbox, in the caller's working directory and with
// the caller's standard streams, and returns the command's exit code.
func (p *Process) Run(args []string) (int, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("find the working directory: %w", err)
	}
	// Namespaces belong to a thread: the thread that enters them must start the
	// command, and must not run other goroutines afterwards.
	runtime.LockOSThread()
	// Only a thread that shares its root and working directory with no other thread
	// can enter a mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("detach the thread: %w", err)
	}
	const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC
	if err := unix.Setns(p.fd, namespaces); err != nil {
		return 0, fmt.Errorf("enter the sandbox: %w", err)
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
	// The caller receives a failure of the command as its exit code.
	_ = cmd.Wait()
	return exitCode(cmd.ProcessState), nil
}

// relaySignals forwards signals that ask for termination to the command. It ignores
// SIGINT, because the terminal sends that to both processes.
func relaySignals(process *os.Process) {
	signal.Ignore(syscall.SIGINT)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGHUP)
	for sig := range signals {
		// Signaling fails if the command has just exited, which is not an error.
		_ = process.Signal(sig)
	}
}

// exitCode follows the convention of shells for a command that a signal terminated.
func exitCode(state *os.ProcessState) int {
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// InitCommand is the hidden subcommand that runs as PID 1 of a sandbox.
const InitCommand = "init"

// Process is PID 1 of a running sandbox. It holds a pidfd, which keeps referring to the
// same process even if the kernel reuses the PID.
type Process struct {
	PID int

	fd int
}

// Find returns the sandbox that belongs to a state directory, or nil.
//
// Find identifies a sandbox by its command line and by being PID 1 of a PID namespace. A
// file with the PID would be less reliable: `rm -rf bin` deletes it while the sandbox
// runs, and it can outlive its process and name a reused PID.
func Find(dir state.Dir) (*Process, error) {
	candidates, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	for _, candidate := range candidates {
		if !isInit(candidate, dir) {
			continue
		}
		process, err := open(candidate.PID)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// The kernel may have reused the PID before open. From here on, it cannot.
		if isInit(candidate, dir) {
			return process, nil
		}
		process.Close()
	}
	return nil, nil
}

func open(pid int) (*Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, err)
	}
	return &Process{PID: pid, fd: fd}, nil
}

// Close releases the pidfd. The process keeps running.
func (p *Process) Close() { unix.Close(p.fd) }

// Kill kills every process of the sandbox and returns when all have exited: PID 1 of a
// PID namespace is the last of its processes to exit.
func (p *Process) Kill(ctx context.Context) error {
	err := unix.PidfdSendSignal(p.fd, unix.SIGKILL, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	for {
		exited, err := p.exited()
		if err != nil {
			return err
		}
		if exited {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for process %d to end: %w", p.PID, context.Cause(ctx))
		}
	}
}

// exited waits up to 100 ms for the process to exit, which makes its pidfd readable.
func (p *Process) exited() (bool, error) {
	const milliseconds = 100
	poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, milliseconds)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("poll process %d: %w", p.PID, err)
	}
	return n > 0, nil
}

// isInit reports whether a process is the init of this state directory's sandbox: it has
// the arguments of init, and is PID 1 of a nested PID namespace.
func isInit(process procfs.Proc, dir state.Dir) bool {
	args, err := process.CmdLine()
	want := initArgs(dir)
	if err != nil || len(args) < len(want) || !slices.Equal(args[:len(want)], want) {
		return false
	}
	// NSpids contains the PID in each namespace that contains the process.
	status, err := process.NewStatus()
	return err == nil && len(status.NSpids) > 1 && status.NSpids[len(status.NSpids)-1] == 1
}

// initArgs returns the start of the command line of init, which identifies a sandbox.
func initArgs(dir state.Dir) []string {
	return []string{"local-cluster", InitCommand, string(dir)}
}

// Exec replaces this program with a command that runs inside the sandbox, in the same working directory. It only
// returns errors.
func Exec(pid int, command []string) error {
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	args := []string{
		"nsenter", "--target=" + strconv.Itoa(pid), "--mount", "--net", "--pid", "--uts", "--ipc", "--wdns=" + cwd,
		"/usr/bin/env", "PATH=" + node.Path, "KUBECONFIG=" + node.AdminKubeconfig,
	}
	return fmt.Errorf("run nsenter: %w", syscall.Exec("/usr/bin/nsenter", append(args, command...), os.Environ()))
}

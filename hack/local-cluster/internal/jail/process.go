//go:build linux

package jail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// InitCommand is the hidden subcommand that runs as PID 1 of a jail.
const InitCommand = "init"

// Process is a running jail's PID 1, held by a descriptor: whatever becomes of
// the number, no other process is ever meant.
type Process struct {
	PID int

	fd int
}

// Find returns the jail that belongs to a state directory, or nil.
//
// A jail is known by its command line and by being PID 1 of a PID namespace, and
// not by a file with a number in it: a file may be lost (with `rm -rf bin`, and
// the jail would run for ever) or outlive its process (and the number be another's).
func Find(dir state.Dir) (*Process, error) {
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil || !isInit(pid, dir) {
			continue
		}
		process, err := open(pid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, err
		}
		// Looked at again through the descriptor's eyes: from here on it is this one.
		if isInit(pid, dir) {
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

// Close releases the descriptor; the process runs on.
func (p *Process) Close() { unix.Close(p.fd) }

// Kill ends the jail and everything in it, and returns once nothing is left: the
// kernel lets PID 1 of a namespace go after all of its processes.
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

// exited waits a moment for the process to end: its descriptor becomes readable.
func (p *Process) exited() (bool, error) {
	const milliseconds = 100
	poll := []unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, milliseconds)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("poll process %d: %w", p.PID, err)
	}
	return n > 0, nil
}

// isInit tells whether a process is the init of this state directory's jail.
func isInit(pid int, dir state.Dir) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	var want bytes.Buffer
	for _, arg := range initArgs(dir) {
		want.WriteString(arg)
		want.WriteByte(0)
	}
	return bytes.HasPrefix(cmdline, want.Bytes()) && isNamespaceInit(pid)
}

// isNamespaceInit tells whether a process is PID 1 of a namespace below ours:
// NSpid lists its number in every namespace that it is seen from.
func isNamespaceInit(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if ids, found := strings.CutPrefix(line, "NSpid:"); found {
			fields := strings.Fields(ids)
			return len(fields) > 1 && fields[len(fields)-1] == "1"
		}
	}
	return false
}

// initArgs begin the command line of a jail's init, and so identify it.
func initArgs(dir state.Dir) []string {
	return []string{"local-cluster", InitCommand, string(dir)}
}

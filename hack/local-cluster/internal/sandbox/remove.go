//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"golang.org/x/sys/unix"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// exitLimit bounds how long the processes of a sandbox may take to exit. It is generous: the kernel takes about one second.
const exitLimit = time.Minute

// Remove removes the sandbox of a state directory, or the remains of one that exited early.
func Remove(ctx context.Context, dir state.Dir) error {
	if err := kill(ctx, dir); err != nil {
		return err
	}
	return removeRemains(dir)
}

// kill kills every process of the sandbox and returns when all have exited: PID 1 of a
// PID namespace is the last of its processes to exit.
func kill(ctx context.Context, dir state.Dir) error {
	ctx, cancel := context.WithTimeout(ctx, exitLimit)
	defer cancel()
	pid, err := Find(dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		for isAnyExiting() && ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
		return nil
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(pidfd)
	// The kernel may have reused the PID before the pidfd existed. From here on, it cannot.
	if again, err := Find(dir); err != nil || again != pid {
		return err
	}
	err = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	for ctx.Err() == nil {
		// The pidfd becomes readable when the process exits. A signal interrupts the poll.
		const milliseconds = 100
		if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, milliseconds); n > 0 {
			return nil
		}
	}
	return fmt.Errorf("wait for process %d to exit: %w", pid, context.Cause(ctx))
}

// removeRemains removes the cgroup and the files that the kernel leaves when a
// sandbox ends.
func removeRemains(dir state.Dir) error {
	cgroup, err := podCgroup(dir)
	if err != nil {
		return err
	}
	if err := cgroup.Destroy(); err != nil {
		return fmt.Errorf("remove the cgroup of the pods: %w", err)
	}
	return dir.RemoveVolatile()
}

// podCgroup returns the parent cgroup of the pods, which need not exist. It supports cgroup v1, with a hierarchy per
// controller, and v2.
func podCgroup(dir state.Dir) (cgroups.Manager, error) {
	cgroup, err := manager.New(&cgroups.Cgroup{Path: "/" + dir.CgroupName(), Resources: &cgroups.Resources{}})
	if err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", dir.CgroupName(), err)
	}
	return cgroup, nil
}

//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"

	"github.com/prometheus/procfs"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// InitCommand is the hidden subcommand that runs as PID 1 of a sandbox.
const InitCommand = "init"

// Find returns the PID of the init of the sandbox that belongs to a state directory, or 0.
//
// Find identifies a sandbox by its command line and by being PID 1 of a PID namespace. A
// file with the PID would be less reliable: `rm -rf bin` deletes it while the sandbox
// runs, and it can outlive its process and name a reused PID.
func Find(dir state.Dir) (int, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return 0, fmt.Errorf("list the processes: %w", err)
	}
	for _, process := range processes {
		if isInit(process, dir) {
			return process.PID, nil
		}
	}
	return 0, nil
}

// isInit reports whether a process is the init of this state directory's sandbox: it has
// the arguments of init, and is PID 1 of a nested PID namespace.
func isInit(process procfs.Proc, dir state.Dir) bool {
	args, err := process.CmdLine()
	want := initArgs(dir)
	if err != nil || len(args) < len(want) || !slices.Equal(args[:len(want)], want) {
		return false
	}
	return isFirst(process)
}

// isFirst reports whether a process is PID 1 of a nested PID namespace.
func isFirst(process procfs.Proc) bool {
	// NSpids contains the PID in each namespace that contains the process.
	status, err := process.NewStatus()
	return err == nil && len(status.NSpids) > 1 && status.NSpids[len(status.NSpids)-1] == 1
}

// isAnyExiting reports whether PID 1 of a nested PID namespace was killed, and waits for the other processes of its
// namespace to exit. It has no command line any more, which would tell the sandbox.
func isAnyExiting() bool {
	processes, _ := procfs.AllProcs()
	return slices.ContainsFunc(processes, func(process procfs.Proc) bool {
		args, argsErr := process.CmdLine()
		stat, statErr := process.Stat()
		return argsErr == nil && statErr == nil && len(args) == 0 && stat.State != "Z" && isFirst(process)
	})
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

//go:build linux

// Command local-cluster runs a disposable Kubernetes cluster with Operator
// Lifecycle Manager (OLM) on this machine, without a container engine and without
// network access. The cluster has one node and runs in one process tree, which
// local-cluster removes as a whole.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

const usage = `local-cluster runs a disposable Kubernetes cluster with OLM on this machine.

Usage:
  local-cluster [flags] up                 create the cluster, or finish an interrupted up
  local-cluster [flags] olm-v1             add OLM v1, or finish an interrupted olm-v1
  local-cluster [flags] gateway            add the Gateway API and a Gateway, or restore them
  local-cluster [flags] samples            push the images of the servers in config/samples
  local-cluster [flags] down               remove the cluster; keep the images of the registry
  local-cluster [flags] status             list the components; exit 1 if one is not running
  local-cluster [flags] exec [--] CMD ...  run a command in the namespaces of the cluster

Flags:
`

// cluster is one local cluster, as seen from the host.
type cluster struct {
	binDir string
	dir    state.Dir
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "local-cluster: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	// Outside its own PID namespace, init would change the host.
	if os.Getpid() == 1 && len(os.Args) == 4 && os.Args[1] == sandbox.InitCommand {
		return sandbox.Init(state.Dir(os.Args[2]), os.Args[3])
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the executable: %w", err)
	}
	c := &cluster{binDir: filepath.Dir(executable)}
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	stateDir := flag.String("state", filepath.Join(c.binDir, "cluster"), "`directory` of the state of the cluster")
	flag.Parse()
	dir, err := filepath.Abs(*stateDir)
	if err != nil {
		return fmt.Errorf("resolve %s: %w", *stateDir, err)
	}
	c.dir = state.Dir(dir)

	commands := map[string]func(context.Context) error{
		"up": c.up, "olm-v1": c.olmV1, "gateway": c.gateway, "samples": c.samples, "down": c.down, "status": c.status,
		"exec": func(context.Context) error { return c.exec(flag.Args()[1:]) },
	}
	name := flag.Arg(0)
	command, known := commands[name]
	switch {
	case !known:
		return fmt.Errorf("unknown command %q; try: local-cluster -help", name)
	case flag.NArg() > 1 && name != "exec":
		return fmt.Errorf("%s takes no arguments", name)
	case os.Geteuid() != 0 && name != "status":
		return fmt.Errorf("%s requires root: run local-cluster with sudo", name)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return command(ctx)
}

// down removes the cluster, or the remains of one that exited early.
func (c *cluster) down(ctx context.Context) error {
	unlock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()

	pid, err := sandbox.Find(c.dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		fmt.Println("not running")
		return sandbox.Remove(ctx, c.dir)
	}
	if err := runSteps(step{"down", func() error { return sandbox.Remove(ctx, c.dir) }}); err != nil {
		return err
	}
	fmt.Printf("kept the images in %s and the logs in %s\n", c.dir.RegistryData(), c.dir.Logs())
	return nil
}

// exec replaces this program with a command that runs inside the sandbox.
func (c *cluster) exec(command []string) error {
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return errors.New("exec requires a command to run")
	}
	pid, err := sandbox.Find(c.dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		return errNotRunning
	}
	return sandbox.Exec(pid, command)
}

// step is one step of a command.
type step struct {
	name string
	run  func() error
}

// runSteps runs each step, and prints its result and duration. It stops at the first error.
func runSteps(steps ...step) error {
	for _, step := range steps {
		begin := time.Now()
		if err := step.run(); err != nil {
			report("✗", step.name, begin)
			return err
		}
		report("✓", step.name, begin)
	}
	return nil
}

func report(mark, name string, begin time.Time) {
	fmt.Printf("%s %-14s %5.1fs\n", mark, name, time.Since(begin).Seconds())
}

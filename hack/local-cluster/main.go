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
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

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

// Exit codes of local-cluster itself. exec exits with the code of its command.
const (
	exitFailure = 1
	exitUsage   = 2
)

// cluster is one local cluster, as seen from the host.
type cluster struct {
	binDir string
	dir    state.Dir
	out    io.Writer
}

func main() {
	// Outside its own PID namespace, init would change the host.
	if os.Getpid() == 1 && len(os.Args) == 4 && os.Args[1] == sandbox.InitCommand {
		err := sandbox.Init(state.Dir(os.Args[2]), os.Args[3])
		fail("%v", err)
		os.Exit(exitFailure)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// run runs the command that the arguments name and returns the exit code.
func run(ctx context.Context, args []string) int {
	c, args, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fail("%v\nTry: local-cluster -help", err)
		return exitUsage
	}

	switch command := args[0]; command {
	case "up":
		err = c.up(ctx)
	case "olm-v1":
		err = c.olmV1(ctx)
	case "gateway":
		err = c.gateway(ctx)
	case "samples":
		err = c.samples(ctx)
	case "down":
		err = c.down(ctx)
	case "status":
		err = c.status()
	case "exec":
		err = c.exec(args[1:])
	}
	if err != nil {
		fail("%v", err)
		return exitFailure
	}
	return 0
}

// parse accepts flags before and after the command, up to the first word of the
// command that exec runs. The first argument that parse returns is a known command.
func parse(args []string) (*cluster, []string, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find the executable: %w", err)
	}
	flags := flag.NewFlagSet("local-cluster", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	binDir := flags.String("bin", filepath.Dir(executable), "`directory` of the programs that the cluster runs")
	stateDir := flags.String("state", "", "`directory` of the state of the cluster (default: cluster, in the -bin directory)")

	if err := flags.Parse(args); err != nil {
		return nil, nil, showUsage(flags, err)
	}
	if flags.NArg() == 0 {
		return nil, nil, errors.New("missing command")
	}
	command := flags.Arg(0)
	if err := flags.Parse(flags.Args()[1:]); err != nil {
		return nil, nil, showUsage(flags, err)
	}
	switch {
	case command == "exec" && flags.NArg() == 0:
		return nil, nil, errors.New("exec requires a command to run")
	case command == "exec":
	case !slices.Contains([]string{"up", "olm-v1", "gateway", "samples", "down", "status"}, command):
		return nil, nil, fmt.Errorf("unknown command %q", command)
	case flags.NArg() > 0:
		return nil, nil, fmt.Errorf("%s takes no arguments", command)
	}

	if *stateDir == "" {
		*stateDir = filepath.Join(*binDir, "cluster")
	}
	dir, err := state.Abs(*stateDir)
	if err != nil {
		return nil, nil, err
	}
	absBinDir, err := filepath.Abs(*binDir)
	if err != nil {
		return nil, nil, fmt.Errorf("resolve %s: %w", *binDir, err)
	}
	c := &cluster{binDir: absBinDir, dir: dir, out: os.Stdout}
	return c, append([]string{command}, flags.Args()...), nil
}

// showUsage prints the usage if the error is flag.ErrHelp.
func showUsage(flags *flag.FlagSet, err error) error {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(usage)
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
	}
	return err
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "local-cluster: "+format+"\n", args...)
}

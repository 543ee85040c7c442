//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// errNotRunning is the error of commands that require a running cluster.
var errNotRunning = errors.New("not running; start the cluster with: local-cluster up")

// status prints the components and the addresses of the cluster. It returns an error
// unless every component runs, so that scripts can check the exit code.
func (c *cluster) status(context.Context) error {
	pid, err := sandbox.Find(c.dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		return errNotRunning
	}
	status, err := c.dir.ReadStatus()
	if err != nil {
		return err
	}
	apiServer, err := state.ReadAddress(c.dir.APIServer())
	if err != nil {
		return err
	}
	registry, err := state.ReadAddress(c.dir.Registry())
	if err != nil {
		return err
	}

	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "init\tPID %d on the host\n", pid)
	fmt.Fprintf(table, "API server\thttps://%s\n", apiServer)
	fmt.Fprintf(table, "registry\thttp://%s\n", registry)
	fmt.Fprintf(table, "kubeconfig\t%s\n", c.dir.Kubeconfig())
	fmt.Fprintf(table, "logs\t%s\n", c.dir.Logs())
	for _, component := range status.Components {
		fmt.Fprintf(table, "%s\t%s\n", component.Name, cmp.Or(component.Exited, "running"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print the status: %w", err)
	}
	if exited := status.FirstExited(); exited != nil {
		return fmt.Errorf("%s exited; see its log in %s", exited.Name, c.dir.Log(exited.Name))
	}
	if !status.Running {
		return errors.New("the control plane is not ready yet")
	}
	return nil
}

//go:build linux

package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/jail"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
)

// status shows what runs and where it is reached. It fails unless everything
// does, so that a script can ask.
func (c *cluster) status() error {
	process, err := jail.Find(c.dir)
	if err != nil {
		return err
	}
	if process == nil {
		return errors.New("not running")
	}
	defer process.Close()
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

	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "init\tprocess %d of the host\n", process.PID)
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
	if dead, found := status.Dead(); found {
		return fmt.Errorf("%s is dead; its log: %s", dead.Name, c.dir.Log(dead.Name))
	}
	if !status.Running {
		return errors.New("the control plane is not up yet")
	}
	return nil
}

// exec runs a command inside the jail.
func (c *cluster) exec(command []string) (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("entering the cluster needs root: run it with sudo")
	}
	process, err := jail.Find(c.dir)
	if err != nil {
		return 0, err
	}
	if process == nil {
		return 0, errors.New("not running; start it with: local-cluster up")
	}
	return process.Run(command)
}

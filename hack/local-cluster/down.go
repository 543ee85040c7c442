//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
)

// downTimeout is a generous limit: the kernel takes about one second.
const downTimeout = time.Minute

// down removes the cluster, or the remains of one that exited early.
func (c *cluster) down(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("removing the cluster requires root: run local-cluster down with sudo")
	}
	unlock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()

	process, err := sandbox.Find(c.dir)
	if err != nil {
		return err
	}
	if process == nil {
		fmt.Fprintln(c.out, "not running")
		return c.removeRemains()
	}
	defer process.Close()
	if err := c.runSteps([]step{{"down", func() error { return c.remove(ctx, process) }}}); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "kept the images in %s and the logs in %s\n", c.dir.RegistryData(), c.dir.Logs())
	return nil
}

func (c *cluster) remove(ctx context.Context, process *sandbox.Process) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := process.Kill(ctx); err != nil {
		return err
	}
	return c.removeRemains()
}

// removeRemains removes the cgroup and the files that the kernel leaves when a
// sandbox ends.
func (c *cluster) removeRemains() error {
	if err := sandbox.RemoveCgroup(c.dir.CgroupName()); err != nil {
		return err
	}
	return c.dir.RemoveVolatile()
}

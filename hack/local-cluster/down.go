//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/jail"
)

// downTimeout is generous: the kernel takes a second.
const downTimeout = time.Minute

// down removes the cluster, or what is left of one that died.
func (c *cluster) down(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("removing the cluster needs root: run it with sudo")
	}
	unlock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()

	process, err := jail.Find(c.dir)
	if err != nil {
		return err
	}
	if process == nil {
		fmt.Fprintln(c.out, "not running")
		return c.sweep(ctx)
	}
	defer process.Close()
	if err := c.step("down", func() error { return c.remove(ctx, process) }); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "kept: images in %s, logs in %s\n", c.dir.RegistryData(), c.dir.Logs())
	return nil
}

func (c *cluster) remove(ctx context.Context, process *jail.Process) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := process.Kill(ctx); err != nil {
		return err
	}
	return c.sweep(ctx)
}

// sweep removes what outlives a jail's processes.
func (c *cluster) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	if err := jail.RemoveCgroup(ctx, c.dir.CgroupName()); err != nil {
		return err
	}
	return c.dir.RemoveVolatile()
}

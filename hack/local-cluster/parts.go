//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/image"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
)

// addPart adds an optional part to the running cluster. Each step is idempotent, so an
// interrupted run can be repeated.
func (c *cluster) addPart(ctx context.Context, name string, steps func(context.Context) []step) error {
	process, err := sandbox.Find(c.dir)
	if err != nil {
		return err
	}
	if process == nil {
		return errNotRunning
	}
	process.Close()
	unlock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout,
		fmt.Errorf("%s is not ready after %v; see the pod logs in %s", name, upTimeout, c.dir.Logs()))
	defer cancel()

	begin := time.Now()
	if err := c.runSteps(steps(ctx)); err != nil {
		return err
	}
	c.report("✓", "up", time.Since(begin))
	return nil
}

// samples pushes the images of the servers in config/samples.
func (c *cluster) samples(ctx context.Context) error {
	return c.addPart(ctx, "the samples", func(ctx context.Context) []step {
		return []step{{"images", func() error { return c.pushImages(ctx, image.Samples) }}}
	})
}

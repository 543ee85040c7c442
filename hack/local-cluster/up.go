//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/image"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/jail"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/manifests"
)

const (
	// upTimeout is far more than a slow machine needs for its first run.
	upTimeout = 5 * time.Minute

	// interval of looking at what can only be looked at.
	interval = 100 * time.Millisecond
)

// up creates the cluster, or finishes what an earlier up began: every step looks
// at what is there, and does what is missing.
func (c *cluster) up(ctx context.Context) error {
	if err := c.preflight(); err != nil {
		return err
	}
	unlock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout,
		fmt.Errorf("the cluster is not up after %v; the logs are in %s", upTimeout, c.dir.Logs()))
	defer cancel()

	healthy, err := c.healthy(ctx)
	if err != nil {
		return err
	}
	if healthy {
		fmt.Fprintf(c.out, "already running; export KUBECONFIG=%s\n", c.dir.Kubeconfig())
		return nil
	}
	if err := c.create(ctx); err != nil {
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted; run it again to go on, or remove the rest with: local-cluster down")
		}
		return err
	}
	fmt.Fprintf(c.out, "export KUBECONFIG=%s\n", c.dir.Kubeconfig())
	return nil
}

// healthy tells whether nothing is left to do. A jail that can never become so,
// with a component dead or its state directory deleted, it removes.
func (c *cluster) healthy(ctx context.Context) (bool, error) {
	process, err := jail.Find(c.dir)
	if err != nil || process == nil {
		return false, err
	}
	defer process.Close()
	status, err := c.dir.ReadStatus()
	if err != nil {
		return false, err
	}
	if dead, found := status.Dead(); found {
		fmt.Fprintf(c.out, "%s is dead (%s): starting over\n", dead.Name, dead.Exited)
		return false, c.remove(ctx, process)
	}
	if len(status.Components) == 0 {
		fmt.Fprintln(c.out, "the state of the running cluster is lost: starting over")
		return false, c.remove(ctx, process)
	}
	if !status.Running {
		return false, nil
	}
	for _, checks := range [][]check{nodeReady, dnsReady, olmReady} {
		if c.wait(ctx, 0, checks...) != nil {
			return false, nil
		}
	}
	return true, nil
}

func (c *cluster) create(ctx context.Context) error {
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	if err := c.step("jail", func() error { return c.spawn(ctx, cancel) }); err != nil {
		return err
	}
	images := make(chan error, 1)
	go func() { images <- c.pushImages(ctx) }()

	steps := []struct {
		name string
		work func() error
	}{
		{"control plane", func() error { return c.awaitRunning(ctx) }},
		{"node", func() error { return c.wait(ctx, upTimeout, nodeReady...) }},
		{"images", func() error { return <-images }},
		{"manifests", func() error { return c.applyManifests(ctx) }},
		{"cluster DNS", func() error { return c.wait(ctx, upTimeout, dnsReady...) }},
		{"OLM", func() error { return c.wait(ctx, upTimeout, olmReady...) }},
	}
	for _, step := range steps {
		if err := c.step(step.name, step.work); err != nil {
			return err
		}
	}
	c.report("✓", "up", time.Since(begin))
	return nil
}

// spawn starts the jail unless it runs, and from then on ends the context when
// something in it dies.
func (c *cluster) spawn(ctx context.Context, cancel context.CancelCauseFunc) error {
	process, err := jail.Find(c.dir)
	if err != nil {
		return err
	}
	var ended <-chan error
	if process != nil {
		process.Close()
	} else {
		if err := c.sweep(ctx); err != nil {
			return err
		}
		if ended, err = jail.Spawn(c.dir, c.binDir); err != nil {
			return err
		}
	}
	go c.watch(ctx, cancel, ended)
	return nil
}

// watch ends the context, with the reason, at the first death in the jail.
func (c *cluster) watch(ctx context.Context, cancel context.CancelCauseFunc, ended <-chan error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-ended:
			cancel(c.obituary(jail.InitCommand, fmt.Sprint(err)))
			return
		case <-ticker.C:
			if status, err := c.dir.ReadStatus(); err != nil {
				cancel(err)
			} else if dead, found := status.Dead(); found {
				cancel(c.obituary(dead.Name, dead.Exited))
			}
		}
	}
}

// obituary says what died and how, with the last that it said.
func (c *cluster) obituary(component, cause string) error {
	const lastLines = 10
	path := c.dir.Log(component)
	log, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s died: %s (and its log cannot be read: %w)", component, cause, err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	lines = lines[max(0, len(lines)-lastLines):]
	return fmt.Errorf("%s died: %s\n  %s\nall of it: %s", component, cause, strings.Join(lines, "\n  "), path)
}

func (c *cluster) awaitRunning(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		status, err := c.dir.ReadStatus()
		if err != nil || status.Running {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

func (c *cluster) pushImages(ctx context.Context) error {
	address, err := state.ReadAddress(c.dir.Registry())
	if err != nil {
		return err
	}
	err = image.PushAll(ctx, address, c.binDir)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *cluster) applyManifests(ctx context.Context) error {
	definitions, err := manifests.OLMDefinitions()
	if err != nil {
		return err
	}
	if err := c.apply(ctx, manifests.CoreDNS+"---\n"+definitions); err != nil {
		return err
	}
	if err := c.wait(ctx, upTimeout, check{"--for=condition=Established", "crd", "--all"}); err != nil {
		return err
	}
	return c.apply(ctx, manifests.OLM+"---\n"+manifests.PackageServer)
}

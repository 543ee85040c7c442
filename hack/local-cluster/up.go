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
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/manifests"
)

const (
	// upTimeout is a generous limit for the first run on a slow machine.
	upTimeout = 20 * time.Minute

	// pollInterval is the interval for conditions that cannot be watched.
	pollInterval = 100 * time.Millisecond
)

// up creates the cluster. Each step is idempotent, so up also finishes what an
// interrupted up started.
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
		fmt.Errorf("the cluster is not ready after %v; see the logs in %s", upTimeout, c.dir.Logs()))
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
			return errors.New("interrupted; continue with: local-cluster up, or remove the remains with: local-cluster down")
		}
		return err
	}
	fmt.Fprintf(c.out, "export KUBECONFIG=%s\n", c.dir.Kubeconfig())
	return nil
}

// healthy reports whether the cluster is complete and ready. It removes a sandbox that can
// never become ready because a component exited or the state directory was deleted.
func (c *cluster) healthy(ctx context.Context) (bool, error) {
	process, err := sandbox.Find(c.dir)
	if err != nil || process == nil {
		return false, err
	}
	defer process.Close()
	status, err := c.dir.ReadStatus()
	if err != nil {
		return false, err
	}
	if exited, found := status.FirstExited(); found {
		fmt.Fprintf(c.out, "%s exited (%s): recreating the cluster\n", exited.Name, exited.Exited)
		return false, c.remove(ctx, process)
	}
	if len(status.Components) == 0 {
		fmt.Fprintln(c.out, "the state of the running cluster is missing: recreating the cluster")
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

	if err := c.runSteps([]step{{"sandbox", func() error { return c.startSandbox(ctx, cancel) }}}); err != nil {
		return err
	}
	images := make(chan error, 1)
	go func() { images <- c.pushImages(ctx, image.Cluster) }()

	err := c.runSteps([]step{
		{"control plane", func() error { return c.waitForControlPlane(ctx) }},
		{"node", func() error { return c.wait(ctx, upTimeout, nodeReady...) }},
		{"images", func() error { return <-images }},
		{"manifests", func() error { return c.applyManifests(ctx) }},
		{"cluster DNS", func() error { return c.wait(ctx, upTimeout, dnsReady...) }},
		{"OLM", func() error { return c.wait(ctx, upTimeout, olmReady...) }},
	})
	if err != nil {
		return err
	}
	c.report("✓", "up", time.Since(begin))
	return nil
}

// startSandbox starts the sandbox unless it runs, and cancels the context as soon as a
// component of the sandbox exits.
func (c *cluster) startSandbox(ctx context.Context, cancel context.CancelCauseFunc) error {
	process, err := sandbox.Find(c.dir)
	if err != nil {
		return err
	}
	var exited <-chan error
	if process != nil {
		process.Close()
	} else {
		if err := c.removeRemains(); err != nil {
			return err
		}
		if exited, err = sandbox.Start(c.dir, c.binDir); err != nil {
			return err
		}
	}
	go c.watch(ctx, cancel, exited)
	return nil
}

// watch cancels the context with the exit error of the first component that exits.
func (c *cluster) watch(ctx context.Context, cancel context.CancelCauseFunc, initExited <-chan error) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-initExited:
			cancel(c.exitError(sandbox.InitCommand, fmt.Sprint(err)))
			return
		case <-ticker.C:
			if status, err := c.dir.ReadStatus(); err != nil {
				cancel(err)
			} else if exited, found := status.FirstExited(); found {
				cancel(c.exitError(exited.Name, exited.Exited))
			}
		}
	}
}

// exitError returns an error with the exit status of a component and the end of its log.
func (c *cluster) exitError(component, cause string) error {
	const maxLines = 10
	path := c.dir.Log(component)
	log, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("%s exited: %s; read its log: %w", component, cause, err)
	}
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	return fmt.Errorf("%s exited: %s\n  %s\nfull log: %s", component, cause, strings.Join(lines, "\n  "), path)
}

func (c *cluster) waitForControlPlane(ctx context.Context) error {
	ticker := time.NewTicker(pollInterval)
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

// pushImages pushes images to the registry of the cluster.
func (c *cluster) pushImages(ctx context.Context, list func(binDir string) ([]image.Image, error)) error {
	address, err := state.ReadAddress(c.dir.Registry())
	if err != nil {
		return err
	}
	images, err := list(c.binDir)
	if err != nil {
		return err
	}
	err = image.Push(ctx, address, c.binDir, images)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (c *cluster) applyManifests(ctx context.Context) error {
	if err := c.apply(ctx, manifests.Kubeadm+"---\n"+manifests.CoreDNS); err != nil {
		return err
	}
	if err := c.applyFile(ctx, "olm-crds.yaml"); err != nil {
		return err
	}
	if err := c.wait(ctx, upTimeout, check{"--for=condition=Established", "crd", "--all"}); err != nil {
		return err
	}
	return c.applyFile(ctx, "olm.yaml")
}

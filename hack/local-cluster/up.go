//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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

	running, err := c.removeBroken(ctx)
	if err != nil {
		return err
	}
	if running && c.ready(ctx) {
		fmt.Printf("already running; export KUBECONFIG=%s\n", c.dir.Kubeconfig())
		return nil
	}
	if err := c.create(ctx, running); err != nil {
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted; continue with: local-cluster up, or remove the remains with: local-cluster down")
		}
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\n", c.dir.Kubeconfig())
	return nil
}

// removeBroken removes a sandbox that can never become ready because a component exited or
// the state directory was deleted. It reports whether the sandbox runs.
func (c *cluster) removeBroken(ctx context.Context) (bool, error) {
	pid, err := sandbox.Find(c.dir)
	if err != nil || pid == 0 {
		return false, err
	}
	status, err := c.dir.ReadStatus()
	if err != nil {
		return false, err
	}
	exited := status.FirstExited()
	switch {
	case exited != nil:
		fmt.Printf("%s exited (%s): recreating the cluster\n", exited.Name, exited.Exited)
	case len(status.Components) == 0:
		fmt.Println("the state of the running cluster is missing: recreating the cluster")
	default:
		return true, nil
	}
	return false, sandbox.Remove(ctx, c.dir)
}

// ready reports whether all conditions of a complete cluster are true now.
func (c *cluster) ready(ctx context.Context) bool {
	status, err := c.dir.ReadStatus()
	if err != nil || !status.Running {
		return false
	}
	for _, check := range slices.Concat(nodeReady, dnsReady, olmReady) {
		if c.kubectl(ctx, "", append([]string{"wait", "--timeout=0s"}, check...)...) != nil {
			return false
		}
	}
	return true
}

func (c *cluster) create(ctx context.Context, running bool) error {
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	if !running {
		if err := runSteps(step{"sandbox", func() error { return c.startSandbox(cancel) }}); err != nil {
			return err
		}
	}
	go c.watch(ctx, cancel)
	images := make(chan error, 1)
	go func() { images <- c.pushImages(ctx, image.Cluster) }()

	err := runSteps(
		step{"control plane", func() error { return c.waitForControlPlane(ctx) }},
		step{"node", func() error { return c.wait(ctx, nodeReady...) }},
		step{"images", func() error { return <-images }},
		step{"manifests", func() error { return c.applyManifests(ctx) }},
		step{"cluster DNS", func() error { return c.wait(ctx, dnsReady...) }},
		step{"OLM", func() error { return c.wait(ctx, olmReady...) }},
	)
	if err != nil {
		return err
	}
	report("✓", "up", begin)
	return nil
}

// startSandbox starts the sandbox, and cancels the context of up if init exits.
func (c *cluster) startSandbox(cancel context.CancelCauseFunc) error {
	process, err := sandbox.Start(c.dir, c.binDir)
	if err != nil {
		return err
	}
	go func() { cancel(c.exitError(sandbox.InitCommand, fmt.Sprint(process.Wait()))) }()
	return nil
}

// watch cancels the context with the exit error of the first component that exits.
func (c *cluster) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	for ctx.Err() == nil {
		if status, err := c.dir.ReadStatus(); err != nil {
			cancel(err)
		} else if exited := status.FirstExited(); exited != nil {
			cancel(c.exitError(exited.Name, exited.Exited))
		}
		time.Sleep(pollInterval)
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
	for ctx.Err() == nil {
		status, err := c.dir.ReadStatus()
		if err != nil || status.Running {
			return err
		}
		time.Sleep(pollInterval)
	}
	return context.Cause(ctx)
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
	if err := c.applyCRDs(ctx, "olm-crds.yaml"); err != nil {
		return err
	}
	return c.applyFile(ctx, "olm.yaml")
}

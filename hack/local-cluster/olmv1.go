//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/image"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/jail"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/manifests"
)

// olmV1Definitions is the file of OLM v1's custom resource definitions. They come
// from its Go module as files, which Go cannot embed from there: `make` copies them.
const olmV1Definitions = "olm-v1-crds.yaml"

// olmV1 adds OLM v1 to the running cluster, beside OLM. Every step looks at what is
// there, and does what is missing.
func (c *cluster) olmV1(ctx context.Context) error {
	process, err := jail.Find(c.dir)
	if err != nil {
		return err
	}
	if process == nil {
		return errors.New("not running; start it with: local-cluster up")
	}
	process.Close()
	unlock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout,
		fmt.Errorf("OLM v1 is not up after %v; the logs of its pods are in %s", upTimeout, c.dir.Logs()))
	defer cancel()

	begin := time.Now()
	steps := []struct {
		name string
		work func() error
	}{
		{"images", func() error { return c.pushOLMV1(ctx) }},
		{"definitions", func() error { return c.defineOLMV1(ctx) }},
		{"manifests", func() error { return c.apply(ctx, manifests.OLMV1) }},
		{"certificates", func() error { return c.certifyOLMV1(ctx) }},
		{"OLM v1", func() error { return c.wait(ctx, upTimeout, olmV1Ready...) }},
	}
	for _, step := range steps {
		if err := c.step(step.name, step.work); err != nil {
			return err
		}
	}
	c.report("✓", "up", time.Since(begin))
	return nil
}

func (c *cluster) pushOLMV1(ctx context.Context) error {
	address, err := state.ReadAddress(c.dir.Registry())
	if err != nil {
		return err
	}
	return image.PushOLMV1(ctx, address, c.binDir)
}

func (c *cluster) defineOLMV1(ctx context.Context) error {
	definitions, err := os.ReadFile(filepath.Join(c.binDir, olmV1Definitions))
	if err != nil {
		return fmt.Errorf("%w; make it with: make cluster-olm-v1", err)
	}
	if err := c.apply(ctx, string(definitions)); err != nil {
		return err
	}
	return c.wait(ctx, upTimeout, check{"--for=condition=Established", "crd", "--all"})
}

// certifyOLMV1 issues certificates once: running pods would see new ones only after
// a while. The webhook's configuration is what is applied last.
func (c *cluster) certifyOLMV1(ctx context.Context) error {
	if c.wait(ctx, 0, check{"--for=create", "mutatingwebhookconfiguration/catalogd"}) == nil {
		return nil
	}
	certificates, err := manifests.OLMV1Certificates()
	if err != nil {
		return err
	}
	return c.apply(ctx, certificates)
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/image"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/state"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/manifests"
)

// olmV1 adds OLM v1 to the running cluster. OLM keeps running. Each step is idempotent, so
// an interrupted run can be repeated.
func (c *cluster) olmV1(ctx context.Context) error {
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
		fmt.Errorf("OLM v1 is not ready after %v; see the pod logs in %s", upTimeout, c.dir.Logs()))
	defer cancel()

	begin := time.Now()
	steps := []struct {
		name string
		run  func() error
	}{
		{"images", func() error { return c.pushOLMV1(ctx) }},
		{"manifests", func() error { return c.applyFile(ctx, "olm-v1.yaml") }},
		{"certificates", func() error { return c.applyOLMV1Certificates(ctx) }},
		{"OLM v1", func() error { return c.wait(ctx, upTimeout, olmV1Ready...) }},
	}
	for _, step := range steps {
		if err := c.step(step.name, step.run); err != nil {
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

// applyOLMV1Certificates issues certificates only once, because the kubelet updates
// mounted Secrets of running pods with a delay. It checks for the last Secret that it applies.
func (c *cluster) applyOLMV1Certificates(ctx context.Context) error {
	if c.wait(ctx, 0, check{"--for=create", "--namespace=olmv1-system", "secret/olmv1-cert"}) == nil {
		return nil
	}
	secrets, caBundle, err := manifests.OLMV1Certificate()
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": %q}]`, caBundle)
	if err := c.kubectl(ctx, "", "patch", "mutatingwebhookconfiguration/catalogd-mutating-webhook-configuration",
		"--type=json", "--patch="+patch); err != nil {
		return err
	}
	return c.apply(ctx, secrets)
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/image"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/sandbox"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/manifests"
)

// olmV1 adds OLM v1 to the running cluster. OLM keeps running.
func (c *cluster) olmV1(ctx context.Context) error {
	return c.addPart(ctx, "OLM v1", func(ctx context.Context) []step {
		return []step{
			{"images", func() error { return c.pushImages(ctx, image.OLMV1) }},
			{"manifests", func() error { return c.applyFile(ctx, "olm-v1.yaml") }},
			{"certificates", func() error { return c.applyOLMV1Certificates(ctx) }},
			{"OLM v1", func() error { return c.wait(ctx, olmV1Ready...) }},
		}
	})
}

// applyOLMV1Certificates issues certificates only once, because the kubelet updates
// mounted Secrets of running pods with a delay. It checks for the last Secret that it applies.
func (c *cluster) applyOLMV1Certificates(ctx context.Context) error {
	if c.kubectl(ctx, "", "get", "--namespace=olmv1-system", "secret/olmv1-cert") == nil {
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

// gateway adds the Gateway API, Traefik and a Gateway to the running cluster. It also restores
// what the deletion of the CRDs of the Gateway API deleted.
func (c *cluster) gateway(ctx context.Context) error {
	return c.addPart(ctx, "the Gateway", func(ctx context.Context) []step {
		return []step{
			{"images", func() error { return c.pushImages(ctx, image.Gateway) }},
			{"Gateway API", func() error { return c.applyCRDs(ctx, "gateway-api.yaml") }},
			{"manifests", func() error { return c.apply(ctx, manifests.Gateway) }},
			{"Gateway", func() error { return c.wait(ctx, gatewayReady...) }},
		}
	})
}

// samples pushes the images of the servers in config/samples.
func (c *cluster) samples(ctx context.Context) error {
	return c.addPart(ctx, "the samples", func(ctx context.Context) []step {
		return []step{{"images", func() error { return c.pushImages(ctx, image.Samples) }}}
	})
}

// addPart adds an optional part to the running cluster. Each step is idempotent, so an
// interrupted run can be repeated.
func (c *cluster) addPart(ctx context.Context, name string, steps func(context.Context) []step) error {
	begin := time.Now()
	pid, err := sandbox.Find(c.dir)
	if err != nil {
		return err
	}
	if pid == 0 {
		return errNotRunning
	}
	unlock, err := c.dir.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, upTimeout,
		fmt.Errorf("%s is not ready after %v; see the pod logs in %s", name, upTimeout, c.dir.Logs()))
	defer cancel()

	if err := runSteps(steps(ctx)...); err != nil {
		return err
	}
	report("✓", "up", begin)
	return nil
}

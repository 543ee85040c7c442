//go:build linux

package main

import (
	"context"
	"fmt"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/image"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/manifests"
)

// olmV1 adds OLM v1 to the running cluster. OLM keeps running.
func (c *cluster) olmV1(ctx context.Context) error {
	return c.addPart(ctx, "OLM v1", func(ctx context.Context) []step {
		return []step{
			{"images", func() error { return c.pushImages(ctx, image.OLMV1) }},
			{"manifests", func() error { return c.applyFile(ctx, "olm-v1.yaml") }},
			{"certificates", func() error { return c.applyOLMV1Certificates(ctx) }},
			{"OLM v1", func() error { return c.wait(ctx, upTimeout, olmV1Ready...) }},
		}
	})
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

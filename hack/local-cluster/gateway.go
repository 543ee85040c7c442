//go:build linux

package main

import (
	"context"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/image"
	"github.com/kkloud-io/echo-operator/hack/local-cluster/manifests"
)

// gateway adds the Gateway API, Traefik and a Gateway to the running cluster. It also restores
// what the deletion of the CRDs of the Gateway API deleted.
func (c *cluster) gateway(ctx context.Context) error {
	return c.addPart(ctx, "the Gateway", func(ctx context.Context) []step {
		return []step{
			{"images", func() error { return c.pushImages(ctx, image.Gateway) }},
			{"Gateway API", func() error { return c.applyGatewayAPI(ctx) }},
			{"manifests", func() error { return c.apply(ctx, manifests.Gateway) }},
			{"Gateway", func() error { return c.wait(ctx, upTimeout, gatewayReady...) }},
		}
	})
}

func (c *cluster) applyGatewayAPI(ctx context.Context) error {
	if err := c.applyFile(ctx, "gateway-api.yaml"); err != nil {
		return err
	}
	return c.wait(ctx, upTimeout, check{"--for=condition=Established", "crd", "--all"})
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/version"
)

// check is a condition of the cluster, written as the arguments of `kubectl wait`.
type check []string

// The cluster is up when the first three are true. The last two are those of the optional parts.
var (
	nodeReady = []check{
		{"--for=create", "node/local-cluster"},
		{"--for=condition=Ready", "node/local-cluster"},
	}
	dnsReady = []check{
		{"--for=condition=Available", "--namespace=kube-system", "deployment/coredns"},
	}
	olmReady = []check{
		{"--for=condition=Available", "--namespace=olm", "deployment/olm-operator", "deployment/catalog-operator"},
		{"--for=jsonpath={.status.phase}=Succeeded", "--namespace=olm", "clusterserviceversion/packageserver"},
		{"--for=condition=Available", "apiservice/v1.packages.operators.coreos.com"},
	}
	olmV1Ready = []check{
		{"--for=condition=Available", "--namespace=olmv1-system", "deployment", "--all"},
	}
	gatewayReady = []check{
		{"--for=condition=Available", "--namespace=traefik", "deployment/traefik"},
		{"--for=condition=Programmed", "--namespace=gateways", "gateway/public"},
	}
)

// wait waits for each check in turn.
func (c *cluster) wait(ctx context.Context, checks ...check) error {
	for _, check := range checks {
		args := append([]string{"wait", "--timeout=" + upTimeout.String()}, check...)
		if err := c.kubectlWithRetries(ctx, "", args...); err != nil {
			return err
		}
	}
	return nil
}

// apply expands the variables of the package version in manifests and applies them. It uses
// server-side apply, because OLM's CRDs exceed the size limit of the
// annotation that client-side apply writes.
func (c *cluster) apply(ctx context.Context, manifests string) error {
	manifests, err := version.Expand(manifests, c.binDir)
	if err != nil {
		return err
	}
	return c.kubectlWithRetries(ctx, manifests,
		"apply", "--server-side", "--force-conflicts", "--field-manager=local-cluster", "--filename=-")
}

// applyFile applies a file of the bin directory. `make` creates these files from the Go
// modules of OLM and of the Gateway API, because Go cannot embed files of another module.
func (c *cluster) applyFile(ctx context.Context, name string) error {
	manifests, err := os.ReadFile(filepath.Join(c.binDir, name))
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	return c.apply(ctx, string(manifests))
}

// applyCRDs applies a file of the bin directory and waits until the API server serves all CRDs.
func (c *cluster) applyCRDs(ctx context.Context, name string) error {
	if err := c.applyFile(ctx, name); err != nil {
		return err
	}
	return c.wait(ctx, check{"--for=condition=Established", "crd", "--all"})
}

// kubectlWithRetries runs kubectl up to five times, but not again after upTimeout. The API server of a slow machine may not
// respond in time, and kubectl wait fails for a CRD that has no conditions yet.
func (c *cluster) kubectlWithRetries(ctx context.Context, stdin string, args ...string) (err error) {
	start := time.Now()
	for range 5 {
		if err = c.kubectl(ctx, stdin, args...); err == nil || ctx.Err() != nil || time.Since(start) >= upTimeout {
			return err
		}
		time.Sleep(time.Second)
	}
	return err
}

func (c *cluster) kubectl(ctx context.Context, stdin string, args ...string) error {
	common := []string{"--kubeconfig=" + c.dir.Kubeconfig(), "--cache-dir=" + c.dir.KubectlCache()}
	cmd := exec.CommandContext(ctx, "kubectl", append(common, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}

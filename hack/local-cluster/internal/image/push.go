// Package image builds the images of the cluster from compiled programs and pushes them
// to its registry.
package image

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/version"
)

// Push pushes images, which contain programs of a directory, to the registry at an address.
func Push(ctx context.Context, registry, binDir string, images []Image) error {
	if err := waitForRegistry(ctx, registry); err != nil {
		return err
	}
	for _, image := range images {
		var err error
		if image.Name, err = version.Expand(image.Name, binDir); err != nil {
			return err
		}
		if err := push(ctx, registry, image); err != nil {
			return fmt.Errorf("push image %s: %w", image.Name, err)
		}
	}
	return nil
}

// push uploads what the registry does not have yet.
func push(ctx context.Context, registry string, image Image) error {
	// From a mirror, containerd requests an image under its name without the host.
	_, path, _ := strings.Cut(image.Name, "/")
	reference, err := name.ParseReference(registry+"/"+path, name.Insecure)
	if err != nil {
		return err
	}
	built, err := build(image)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	if err := remote.Write(reference, built, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return nil
}

// build is reproducible: the same files produce the same digest.
func build(image Image) (v1.Image, error) {
	layer, err := newLayer(image.Files)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	configured, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS:           "linux",
		Architecture: runtime.GOARCH,
		Config:       image.Config,
		RootFS:       v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(configured, layer)
}

// waitForRegistry waits until the registry responds, because up pushes images as soon as the sandbox runs.
func waitForRegistry(ctx context.Context, registry string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+registry+"/v2/", nil)
	if err != nil {
		return err
	}
	for {
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			return response.Body.Close()
		}
		if ctx.Err() != nil {
			return fmt.Errorf("registry %s is not ready: %w", registry, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

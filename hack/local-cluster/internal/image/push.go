// Package image builds the images of the cluster from compiled programs and pushes them
// to its registry.
package image

import (
	"context"
	"errors"
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
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/version"
)

// PushAll pushes the images that every cluster needs to the registry at an address.
func PushAll(ctx context.Context, registry, binDir string) error {
	images, err := clusterImages(binDir)
	if err != nil {
		return err
	}
	return Push(ctx, registry, binDir, images)
}

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

// push uploads an image unless the registry has one with the same digest.
func push(ctx context.Context, registry string, image Image) error {
	reference, err := mirrorReference(registry, image.Name)
	if err != nil {
		return err
	}
	built, err := build(image)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	want, err := built.Digest()
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	present, err := remote.Head(reference, remote.WithContext(ctx))
	if err == nil && present.Digest == want {
		return nil
	}
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("read its digest: %w", err)
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
	withLayer, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := withLayer.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Config = "linux", runtime.GOARCH, image.Config
	return mutate.ConfigFile(withLayer, config)
}

// mirrorReference returns the reference of an image in the local registry: its name
// without the host, because that is what containerd requests from a mirror.
func mirrorReference(registry, image string) (name.Reference, error) {
	_, rest, found := strings.Cut(image, "/")
	if !found {
		return nil, errors.New("its name contains no registry host")
	}
	return name.ParseReference(registry+"/"+rest, name.Insecure)
}

func waitForRegistry(ctx context.Context, registry string) error {
	ping := func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+registry+"/v2/", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	for {
		err := ping()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("registry %s is not ready: %w", registry, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func isNotFound(err error) bool {
	var failure *transport.Error
	return errors.As(err, &failure) && failure.StatusCode == http.StatusNotFound
}

// Package image makes the images of the cluster from programs that are already
// built, and puts them into its registry.
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
)

// PushAll brings the registry at an address up to date with what every cluster
// needs.
func PushAll(ctx context.Context, registry, binDir string) error {
	images, err := table(binDir)
	if err != nil {
		return err
	}
	return pushAll(ctx, registry, images)
}

// PushOLMV1 does the same with the images of OLM v1.
func PushOLMV1(ctx context.Context, registry, binDir string) error {
	return pushAll(ctx, registry, olmV1Table(binDir))
}

// pushAll does not send again what the registry holds already.
func pushAll(ctx context.Context, registry string, images []Image) error {
	if err := awaitRegistry(ctx, registry); err != nil {
		return err
	}
	for _, image := range images {
		if err := push(ctx, registry, image); err != nil {
			return fmt.Errorf("image %s: %w", image.Name, err)
		}
	}
	return nil
}

// push uploads an image unless the registry has exactly this one.
func push(ctx context.Context, registry string, image Image) error {
	reference, err := mirrored(registry, image.Name)
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
		return fmt.Errorf("look up: %w", err)
	}
	if err := remote.Write(reference, built, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("push: %w", err)
	}
	return nil
}

// build makes the same image, to the bit, of the same files.
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

// mirrored is where the local registry keeps an image: under its name without
// the host, because that is what containerd asks a mirror for.
func mirrored(registry, image string) (name.Reference, error) {
	_, rest, found := strings.Cut(image, "/")
	if !found {
		return nil, errors.New("its name lacks the host of a registry")
	}
	return name.ParseReference(registry+"/"+rest, name.Insecure)
}

func awaitRegistry(ctx context.Context, registry string) error {
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
			return fmt.Errorf("the registry does not answer: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func isNotFound(err error) bool {
	var failure *transport.Error
	return errors.As(err, &failure) && failure.StatusCode == http.StatusNotFound
}

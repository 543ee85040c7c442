package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/operator-registry/alpha/declcfg"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

const (
	packageName = "echo-operator"
	catalogDir  = "catalog/echo-operator"
	bundleImage = "ghcr.io/kkloud-io/echo-operator-bundle"
)

// A version is one version in a catalog.
type version struct {
	semver.Version
	channels   []string
	deprecated string
	// bundle contains only the bundle of the version.
	bundle *declcfg.DeclarativeConfig
}

func (v version) name() string { return packageName + ".v" + v.String() }

// render writes the catalog of the published releases, or deletes it if there is none.
func render(ctx context.Context) error {
	published, err := releases.Published()
	if err != nil {
		return err
	}
	if len(published) == 0 {
		fmt.Println("No release is published yet, so there is no catalog.")
		return os.RemoveAll(catalogDir)
	}
	var versions []version
	for _, release := range published {
		dir, err := os.MkdirTemp("", "bundle-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		// `opm alpha render-template basic` would pull the bundle from a registry.
		if err := release.Extract(dir, "bundle"); err != nil {
			return err
		}
		bundle, err := renderBundle(ctx, dir, bundleImage+"@"+release.Bundle)
		if err != nil {
			return err
		}
		versions = append(versions, version{release.Semver(), release.Channels, release.Deprecated, bundle})
	}
	catalog, err := assemble(versions)
	if err != nil {
		return err
	}
	return write(*catalog, catalogDir)
}

// build writes a catalog that contains only the bundle in bin/package, in the channels that its metadata name.
func build(ctx context.Context, image string) error {
	const dir = "bin/package/bundle"
	content, err := manifests.GetBundleFromDir(dir)
	if err != nil {
		return err
	}
	bundle, err := renderBundle(ctx, dir, image)
	if err != nil {
		return err
	}
	catalog, err := assemble([]version{{content.CSV.Spec.Version.Version, content.Channels, "", bundle}})
	if err != nil {
		return err
	}
	return write(*catalog, "bin/package/"+packageName)
}

// assemble returns the catalog of versions, which are sorted. In each channel a version replaces the one before, and
// those in releases.SkipRange.
func assemble(versions []version) (*declcfg.DeclarativeConfig, error) {
	catalog := &declcfg.DeclarativeConfig{}
	entries := map[string][]declcfg.ChannelEntry{}
	var deprecations []declcfg.DeprecationEntry
	for _, v := range versions {
		for _, channel := range v.channels {
			before := entries[channel]
			entry := declcfg.ChannelEntry{Name: v.name(), SkipRange: releases.SkipRange(channel, len(before) == 0, versions[0].Version, v.Version)}
			if len(before) > 0 {
				entry.Replaces = before[len(before)-1].Name
			}
			entries[channel] = append(before, entry)
		}
		if v.deprecated != "" {
			deprecations = append(deprecations, declcfg.DeprecationEntry{Message: v.deprecated,
				Reference: declcfg.PackageScopedReference{Schema: declcfg.SchemaBundle, Name: v.name()}})
		}
		catalog.Merge(v.bundle)
	}
	channels := slices.Sorted(maps.Keys(entries))
	for _, name := range channels {
		catalog.Channels = append(catalog.Channels,
			declcfg.Channel{Schema: declcfg.SchemaChannel, Package: packageName, Name: name, Entries: entries[name]})
	}
	if len(deprecations) > 0 {
		catalog.Deprecations = []declcfg.Deprecation{{Schema: declcfg.SchemaDeprecation, Package: packageName, Entries: deprecations}}
	}
	described, err := describe(defaultChannel(channels))
	catalog.Packages = []declcfg.Package{described}
	return catalog, err
}

// defaultChannel returns the stable channel of the newest major version, and a candidate channel only if no channel is
// stable.
func defaultChannel(channels []string) string {
	rank := func(channel string) string {
		stability, major, _ := strings.Cut(channel, "-")
		return fmt.Sprint(stability != "candidate", major)
	}
	return slices.MaxFunc(channels, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
}

// describe returns the package with the description and the icon of this tree's ClusterServiceVersion.
func describe(defaultChannel string) (declcfg.Package, error) {
	content, err := manifests.GetBundleFromDir("bundle")
	if err != nil {
		return declcfg.Package{}, err
	}
	image := content.CSV.Spec.Icon[0]
	icon, err := base64.StdEncoding.DecodeString(image.Data)
	return declcfg.Package{Schema: declcfg.SchemaPackage, Name: packageName, DefaultChannel: defaultChannel,
		Description: content.CSV.Annotations["description"], Icon: &declcfg.Icon{Data: icon, MediaType: image.MediaType}}, err
}

// renderBundle returns the catalog entry for a bundle directory. It runs opm: operator-registry's own
// package for this, alpha/action, doubles the dependencies and builds only with special build tags.
func renderBundle(ctx context.Context, dir, image string) (*declcfg.DeclarativeConfig, error) {
	opm := exec.CommandContext(ctx, "opm", "render", dir, "--alpha-image-ref-template", image,
		"--migrate-level", "bundle-object-to-csv-metadata", "-o", "yaml") // #nosec G204 -- arguments of this tool
	opm.Stderr = os.Stderr
	text, err := opm.Output()
	if err != nil {
		return nil, fmt.Errorf("opm render %s: %w", dir, err)
	}
	return declcfg.LoadReader(bytes.NewReader(text))
}

// write validates a catalog and writes it to catalog.yaml in a directory.
func write(catalog declcfg.DeclarativeConfig, dir string) error {
	if _, err := declcfg.ConvertToModel(catalog); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	var text bytes.Buffer
	if err := declcfg.WriteYAML(catalog, &text); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "catalog.yaml"), text.Bytes(), 0o644)
}

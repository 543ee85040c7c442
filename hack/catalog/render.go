package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"sigs.k8s.io/yaml"

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
	versions, err := released(ctx, published)
	if err != nil {
		return err
	}
	catalog, err := assemble(versions)
	if err != nil {
		return err
	}
	return write(*catalog, catalogDir)
}

// released returns the versions of releases. It takes the bundles from their commits, where
// `opm alpha render-template basic` would pull them from a registry.
func released(ctx context.Context, list []releases.Release) ([]version, error) {
	var versions []version
	for _, release := range list {
		dir, err := os.MkdirTemp("", "bundle-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		if err := release.Extract(dir, "bundle"); err != nil {
			return nil, err
		}
		bundle, err := renderBundle(ctx, dir, bundleImage+"@"+release.Bundle)
		if err != nil {
			return nil, err
		}
		versions = append(versions, version{release.Semver(), release.Channels, release.Deprecated, bundle})
	}
	return versions, nil
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
	for _, channel := range sortChannels(entries) {
		addChannel(catalog, channel, entries[channel]...)
	}
	if len(deprecations) > 0 {
		catalog.Deprecations = []declcfg.Deprecation{{Schema: declcfg.SchemaDeprecation, Package: packageName, Entries: deprecations}}
	}
	described, err := describe()
	described.DefaultChannel = defaultChannel(catalog.Channels)
	catalog.Packages = []declcfg.Package{described}
	return catalog, err
}

// sortChannels returns the names of the channels: by major version, and the most stable last.
func sortChannels(entries map[string][]declcfg.ChannelEntry) []string {
	var names []string
	for name := range entries {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		stabilityA, majorA, _ := strings.Cut(a, "-")
		stabilityB, majorB, _ := strings.Cut(b, "-")
		if majorA != majorB {
			return strings.Compare(majorA, majorB)
		}
		return strings.Compare(stabilityA, stabilityB) // candidate, fast, stable
	})
	return names
}

// defaultChannel returns the last channel that is not a candidate channel, or the only one.
func defaultChannel(channels []declcfg.Channel) (name string) {
	for _, channel := range channels {
		if name == "" || !strings.HasPrefix(channel.Name, "candidate") {
			name = channel.Name
		}
	}
	return name
}

// describe returns the package with the description and the icon of this tree's ClusterServiceVersion.
func describe() (declcfg.Package, error) {
	text, err := os.ReadFile("config/manifests/bases/echo-operator.clusterserviceversion.yaml")
	if err != nil {
		return declcfg.Package{}, err
	}
	var csv v1alpha1.ClusterServiceVersion
	if err := yaml.Unmarshal(text, &csv); err != nil {
		return declcfg.Package{}, err
	}
	icon, err := base64.StdEncoding.DecodeString(csv.Spec.Icon[0].Data)
	return declcfg.Package{Schema: declcfg.SchemaPackage, Name: packageName, Description: csv.Annotations["description"],
		Icon: &declcfg.Icon{Data: icon, MediaType: csv.Spec.Icon[0].MediaType}}, err
}

// thisTree returns the version of a bundle of this tree, in the channels that its metadata name.
func thisTree(ctx context.Context, dir, image string) (version, error) {
	bundle, err := renderBundle(ctx, dir, image)
	if err != nil {
		return version{}, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "metadata/annotations.yaml"))
	if err != nil {
		return version{}, err
	}
	var metadata struct{ Annotations map[string]string }
	if err := yaml.Unmarshal(text, &metadata); err != nil {
		return version{}, err
	}
	number, err := semver.Parse(strings.TrimPrefix(bundle.Bundles[0].Name, packageName+".v"))
	channels := strings.Split(metadata.Annotations["operators.operatorframework.io.bundle.channels.v1"], ",")
	return version{number, channels, "", bundle}, err
}

// build writes a catalog that contains only the bundle in bin/package.
func build(ctx context.Context, image string) error {
	tree, err := thisTree(ctx, "bin/package/bundle", image)
	if err != nil {
		return err
	}
	catalog, err := assemble([]version{tree})
	if err != nil {
		return err
	}
	return write(*catalog, "bin/package/"+packageName)
}

func addChannel(catalog *declcfg.DeclarativeConfig, name string, entries ...declcfg.ChannelEntry) {
	catalog.Channels = append(catalog.Channels,
		declcfg.Channel{Schema: declcfg.SchemaChannel, Package: packageName, Name: name, Entries: entries})
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

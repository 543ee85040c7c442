package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

const (
	testDir     = "bin/catalogs"
	bundleImage = "ghcr.io/kkloud-io/echo-operator-bundle:v{{.Version}}"
)

// writeTestCatalogs writes the catalogs and bundles for the upgrade tests. Catalog "published" is the one
// in catalog/. Catalog "broken" has a channel "test" in which this tree's version follows the newest
// release, and a version that never becomes ready follows this tree's version. Catalog "fixed" adds a
// version that replaces the broken one.
func writeTestCatalogs(ctx context.Context, released []releases.Release) error {
	if err := os.RemoveAll(testDir); err != nil {
		return err
	}
	bundles, err := renderBundle(ctx, "bin/package/bundle", bundleImage)
	if err != nil {
		return err
	}
	current := bundles.Bundles[0].Name
	version, err := semver.Parse(strings.TrimPrefix(current, packageName+".v"))
	if err != nil {
		return err
	}
	newest := packageName + ".v" + released[len(released)-1].Version
	entries := []declcfg.ChannelEntry{{Name: newest}, {Name: current, Replaces: newest}}
	if err := writeTestCatalog(ctx, "published", nil, bundles); err != nil {
		return err
	}

	version.Patch++
	broken := declcfg.ChannelEntry{Name: packageName + ".v" + version.String(), Replaces: current}
	entries = append(entries, broken)
	if err := addBundle(ctx, bundles, version,
		"path: /readyz", "path: /never", "progressDeadlineSeconds: 120", "progressDeadlineSeconds: 20"); err != nil {
		return err
	}
	if err := writeTestCatalog(ctx, "broken", entries, bundles); err != nil {
		return err
	}

	version.Patch++
	fixed := declcfg.ChannelEntry{Name: packageName + ".v" + version.String(), Replaces: current, Skips: []string{broken.Name}}
	entries = append(entries, fixed)
	if err := addBundle(ctx, bundles, version); err != nil {
		return err
	}
	return writeTestCatalog(ctx, "fixed", entries, bundles)
}

// writeTestCatalog writes the published catalog with the bundles in the channel "test".
func writeTestCatalog(ctx context.Context, name string, entries []declcfg.ChannelEntry, bundles *declcfg.DeclarativeConfig) error {
	catalog, err := declcfg.LoadFS(ctx, os.DirFS(catalogDir))
	if err != nil {
		return err
	}
	if entries != nil {
		addChannel(catalog, "test", entries...)
		catalog.Merge(bundles)
	}
	return write(*catalog, filepath.Join(testDir, name, packageName))
}

// addBundle copies this tree's bundle with another version and further changes, which are pairs of old and
// new text in the ClusterServiceVersion, and adds it to bundles.
func addBundle(ctx context.Context, bundles *declcfg.DeclarativeConfig, version semver.Version, changes ...string) error {
	dir := filepath.Join(testDir, version.String(), "bundle")
	if err := os.CopyFS(dir, os.DirFS("bin/package/bundle")); err != nil {
		return err
	}
	file := filepath.Join(dir, "manifests/echo-operator.clusterserviceversion.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	current := strings.TrimPrefix(bundles.Bundles[0].Name, packageName+".v")
	changes = append(changes, "\n  name: echo-operator.v"+current+"\n", "\n  name: echo-operator.v"+version.String()+"\n",
		"\n  version: "+current+"\n", "\n  version: "+version.String()+"\n")
	for change := range slices.Chunk(changes, 2) {
		if !bytes.Contains(text, []byte(change[0])) {
			return fmt.Errorf("%s does not contain %q", file, change[0])
		}
		text = bytes.ReplaceAll(text, []byte(change[0]), []byte(change[1]))
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return err
	}
	bundle, err := renderBundle(ctx, dir, bundleImage)
	if err != nil {
		return err
	}
	bundles.Merge(bundle)
	return nil
}

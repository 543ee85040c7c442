package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

const testDir = "bin/catalogs"

// writeTestCatalogs writes the catalogs and bundles for the upgrade tests. Catalog "next" is the one after the
// release of this tree's version in all channels, with the versions in test/catalog. Catalog "major" adds the next
// major version, which is 1.0.0, and 1.1.0. Catalog "broken" has a channel "test" in which this tree's version follows the
// newest release, and a version that never becomes ready follows this tree's version. Catalog "fixed" adds a version
// that replaces the broken one.
func writeTestCatalogs(ctx context.Context) error {
	if err := os.RemoveAll(testDir); err != nil {
		return err
	}
	list, err := releases.Load()
	if err != nil {
		return err
	}
	versions, err := released(ctx, list)
	if err != nil {
		return err
	}
	tree, err := thisTree(ctx, "bin/package/bundle", bundleImage+":v{{.Version}}")
	if err != nil {
		return err
	}
	newest := versions[len(versions)-1]
	tree.channels = []string{"candidate-v0", "fast-v0", "stable-v0"}
	versions = append(versions, tree)
	next, err := assemble(versions)
	if err != nil {
		return err
	}
	if err := write(*next, filepath.Join(testDir, "next", packageName)); err != nil {
		return err
	}

	major, err := tree.copyTo(ctx, "1.0.0", []string{"candidate-v1", "fast-v1"})
	if err != nil {
		return err
	}
	minor, err := tree.copyTo(ctx, "1.1.0", []string{"candidate-v1", "fast-v1"})
	if err != nil {
		return err
	}
	nextMajor, err := assemble(append(versions, major, minor))
	if err != nil {
		return err
	}
	if err := write(*nextMajor, filepath.Join(testDir, "major", packageName)); err != nil {
		return err
	}

	entries := []declcfg.ChannelEntry{{Name: newest.name()}, {Name: tree.name(), Replaces: newest.name()}}
	patch := tree.Version
	patch.Patch++
	broken, err := tree.copyTo(ctx, patch.String(), nil,
		"path: /readyz", "path: /never", "progressDeadlineSeconds: 120", "progressDeadlineSeconds: 20")
	if err != nil {
		return err
	}
	next.Merge(broken.bundle)
	entries = append(entries, declcfg.ChannelEntry{Name: broken.name(), Replaces: tree.name()})
	if err := writeTestCatalog("broken", *next, entries); err != nil {
		return err
	}

	patch.Patch++
	fixed, err := tree.copyTo(ctx, patch.String(), nil)
	if err != nil {
		return err
	}
	next.Merge(fixed.bundle)
	entries = append(entries, declcfg.ChannelEntry{Name: fixed.name(), Replaces: tree.name(), Skips: []string{broken.name()}})
	return writeTestCatalog("fixed", *next, entries)
}

// writeTestCatalog writes a catalog with the additional channel "test".
func writeTestCatalog(name string, catalog declcfg.DeclarativeConfig, entries []declcfg.ChannelEntry) error {
	catalog.Channels = slices.Clone(catalog.Channels)
	addChannel(&catalog, "test", entries...)
	return write(catalog, filepath.Join(testDir, name, packageName))
}

// copyTo copies this tree's bundle to another version, with further changes, which are pairs of old and new text in
// the ClusterServiceVersion.
func (v version) copyTo(ctx context.Context, number string, channels []string, changes ...string) (version, error) {
	copied := version{semver.MustParse(number), channels, "", nil}
	dir := filepath.Join(testDir, number, "bundle")
	if err := os.CopyFS(dir, os.DirFS("bin/package/bundle")); err != nil {
		return copied, err
	}
	file := filepath.Join(dir, "manifests/echo-operator.clusterserviceversion.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return copied, err
	}
	changes = append(changes, "\n  name: "+v.name()+"\n", "\n  name: "+copied.name()+"\n",
		"\n  version: "+v.String()+"\n", "\n  version: "+number+"\n")
	for change := range slices.Chunk(changes, 2) {
		if !bytes.Contains(text, []byte(change[0])) {
			return copied, fmt.Errorf("%s does not contain %q", file, change[0])
		}
		text = bytes.ReplaceAll(text, []byte(change[0]), []byte(change[1]))
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return copied, err
	}
	copied.bundle, err = renderBundle(ctx, dir, bundleImage+":v{{.Version}}")
	return copied, err
}

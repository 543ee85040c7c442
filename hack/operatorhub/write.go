package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/manifests"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

// resetDir empties the operator's directory and writes its ci.yaml.
func resetDir(root, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return copyFile(filepath.Join(root, "config/operatorhub/ci.yaml"), filepath.Join(dir, "ci.yaml"))
}

// writeTree adds this tree's version. It replaces a release of the same version.
func writeTree(root, dir string) error {
	bundle := filepath.Join(root, "bundle")
	content, err := manifests.GetBundleFromDir(bundle)
	if err != nil {
		return fmt.Errorf("%s: %w", bundle, err)
	}
	version := filepath.Join(dir, content.CSV.Spec.Version.String())
	if err := os.RemoveAll(version); err != nil {
		return err
	}
	if err := os.CopyFS(version, os.DirFS(bundle)); err != nil {
		return err
	}
	return annotateOpenShiftVersions(version)
}

// writeReleases adds the bundle of every release, read from the release's commit.
func writeReleases(dir string) error {
	list, err := releases.Load()
	if err != nil {
		return err
	}
	for _, release := range list {
		version := filepath.Join(dir, release.Version)
		if err := os.MkdirAll(version, 0o755); err != nil {
			return err
		}
		if err := release.Extract(version, "bundle"); err != nil {
			return err
		}
		if err := annotateOpenShiftVersions(version); err != nil {
			return err
		}
	}
	return nil
}

// annotateOpenShiftVersions names the oldest OpenShift release that contains the bundle's
// minKubeVersion. The OpenShift community catalog uses the same directory and requires the
// annotation; OperatorHub.io ignores it.
func annotateOpenShiftVersions(version string) error {
	bundle, err := manifests.GetBundleFromDir(version)
	if err != nil {
		return fmt.Errorf("%s: %w", version, err)
	}
	minimum, err := semver.Parse(bundle.CSV.Spec.MinKubeVersion)
	if err != nil {
		return fmt.Errorf("%s: spec.minKubeVersion: %w", bundle.CSV.Name, err)
	}
	file := filepath.Join(version, "metadata/annotations.yaml")
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), openShiftVersions) {
		return err
	}
	line := fmt.Sprintf("  %s: v4.%d\n", openShiftVersions, minimum.Minor-openShiftOffset)
	return writeFile(file, append(text, line...))
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeFile(to, text)
}

func writeFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/manifests"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

// A hub is a repository of operators that accepts pull requests.
type hub struct {
	name string
	// adapt changes the bundle for the hub, and writes the files beside it.
	adapt func(dir, version string, channels []string, published []releases.Release) error
}

var hubs = []hub{{"community-operators", onlyFast}, {"community-operators-prod", fileBasedCatalog}}

// write writes the operator's directory with the bundle of one version.
func (h hub) write(root, dir, bundle string, published []releases.Release) error {
	content, err := manifests.GetBundleFromDir(bundle)
	if err != nil {
		return err
	}
	number := content.CSV.Spec.Version.String()
	version := filepath.Join(dir, number)
	if err := copyFile(filepath.Join(root, "config/operatorhub", h.name, "ci.yaml"), filepath.Join(dir, "ci.yaml")); err != nil {
		return err
	}
	// It replaces a release of the same version.
	if err := errors.Join(os.RemoveAll(version), os.CopyFS(version, os.DirFS(bundle))); err != nil {
		return err
	}
	published = slices.DeleteFunc(slices.Clone(published), func(r releases.Release) bool { return r.Version == number })
	return errors.Join(annotateOpenShiftVersions(version), h.adapt(dir, number, content.Channels, published))
}

const (
	channelsAnnotation       = "operators.operatorframework.io.bundle.channels.v1"
	defaultChannelAnnotation = "operators.operatorframework.io.bundle.channel.default.v1"
)

// onlyFast offers the version in the channel fast only. In semver-mode every version is in every channel of its
// metadata at once, and upgrades through skipRange: that is what the channel fast means, and no other.
func onlyFast(dir, version string, channels []string, _ []releases.Release) error {
	fast := slices.IndexFunc(channels, isFast)
	if fast < 0 {
		return fmt.Errorf("version %s is in %v: only versions in a channel fast-v<major> are for this hub", version, channels)
	}
	file := filepath.Join(dir, version, "metadata/annotations.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		for _, annotation := range []string{channelsAnnotation, defaultChannelAnnotation} {
			if strings.HasPrefix(strings.TrimSpace(line), annotation+":") {
				lines[i] = "  " + annotation + ": " + channels[fast]
			}
		}
	}
	return writeFile(file, []byte(strings.Join(lines, "\n")))
}

func isFast(channel string) bool { return strings.HasPrefix(channel, "fast-") }

// hubBundles is the repository into which the pipeline of OpenShift's community catalog pushes bundles.
const hubBundles = "quay.io/community-operator-pipeline-prod/echo-operator:"

// fileBasedCatalog writes the template of the published releases, and the places of this version in it. The
// pipeline adds the version to the template after the merge.
func fileBasedCatalog(dir, version string, channels []string, published []releases.Release) error {
	type entry map[string]any
	name := func(version string) string { return "echo-operator.v" + version }
	inChannel := map[string][]any{}
	var bundles []any
	number := semver.MustParse(version)
	first := number
	if len(published) > 0 {
		first = published[0].Semver()
	}
	// place returns what a version replaces and skips in a channel.
	place := func(number semver.Version, channel string) entry {
		e := entry{}
		before := inChannel[channel]
		if len(before) > 0 {
			e["replaces"] = before[len(before)-1].(entry)["name"]
		}
		if skipped := releases.SkipRange(channel, len(before) == 0, first, number); skipped != "" {
			e["skipRange"] = skipped
		}
		return e
	}
	for _, release := range published {
		for _, channel := range release.Channels {
			e := place(release.Semver(), channel)
			e["name"] = name(release.Version)
			inChannel[channel] = append(inChannel[channel], e)
		}
		bundles = append(bundles, entry{"schema": "olm.bundle", "name": name(release.Version), "image": hubBundles + "v" + release.Version})
	}
	var catalogTemplates []any
	for _, channel := range channels {
		e := place(number, channel)
		e["template_name"], e["channels"] = "basic.yaml", []string{channel}
		catalogTemplates = append(catalogTemplates, e)
	}
	config := entry{"catalog_templates": catalogTemplates}
	if i := slices.IndexFunc(channels, isFast); i >= 0 {
		config["defaultChannel"] = channels[i]
	}

	entries := []any{entry{"schema": "olm.package", "name": "echo-operator", "defaultChannel": config["defaultChannel"]}}
	for _, channel := range slices.Sorted(maps.Keys(inChannel)) {
		entries = append(entries, entry{"schema": "olm.channel", "package": "echo-operator", "name": channel, "entries": inChannel[channel]})
	}
	entries = append(entries, bundles...)
	return errors.Join(
		writeYAML(filepath.Join(dir, version, "release-config.yaml"), config),
		writeYAML(filepath.Join(dir, "catalog-templates/basic.yaml"), entry{"schema": "olm.template.basic", "entries": entries}))
}

func writeYAML(file string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return writeFile(file, text)
}

// copyBundle copies the directories of the bundle that the options name: manifests, metadata and tests.
func copyBundle(o options, dir string) error {
	if o.release != "" {
		list, err := releases.Load()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(r releases.Release) bool { return r.Version == o.release })
		if i < 0 {
			return fmt.Errorf("version %s is not a release: see %s", o.release, releases.List)
		}
		return list[i].Extract(dir, "bundle")
	}
	info, err := os.Stat(o.bundle)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(dir, os.DirFS(o.bundle))
	}
	return untar(o.bundle, dir)
}

// untar extracts the files below bundle/ of a compressed tarball.
func untar(file, dir string) error {
	opened, err := os.Open(file)
	if err != nil {
		return err
	}
	defer opened.Close()
	unzipped, err := gzip.NewReader(opened)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	archive := tar.NewReader(unzipped)
	for found := false; ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			if !found {
				return fmt.Errorf("%s has no directory bundle", file)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		path, below := strings.CutPrefix(strings.TrimPrefix(header.Name, "./"), "bundle/")
		if !below || header.Typeflag != tar.TypeReg {
			continue
		}
		if !filepath.IsLocal(path) {
			return fmt.Errorf("%s: path %s leaves the directory", file, header.Name)
		}
		text, err := io.ReadAll(io.LimitReader(archive, 1<<20))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := writeFile(filepath.Join(dir, path), text); err != nil {
			return err
		}
		found = true
	}
}

// checkDigests fails if the ClusterServiceVersion names an image without a digest: it is not that of a release.
func checkDigests(bundle string) error {
	content, err := manifests.GetBundleFromDir(bundle)
	if err != nil {
		return err
	}
	csv := content.CSV
	images := []string{csv.Annotations["containerImage"]}
	for _, image := range csv.Spec.RelatedImages {
		images = append(images, image.Image)
	}
	for _, deployment := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		for _, container := range deployment.Spec.Template.Spec.Containers {
			images = append(images, container.Image)
		}
	}
	for _, image := range images {
		if !strings.Contains(image, "@sha256:") {
			return fmt.Errorf("%s names image %q, want a digest: this is not the bundle of a release", csv.Name, image)
		}
	}
	return nil
}

// annotateOpenShiftVersions names the oldest OpenShift release that contains the bundle's
// minKubeVersion. The OpenShift community catalog requires the annotation; OperatorHub.io ignores it.
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

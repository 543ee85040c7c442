package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
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
	// adapt changes the bundle of a version for the hub, and writes the files beside it.
	adapt func(dir, version string, channels []string, published []releases.Release) error
}

var hubs = []hub{{"community-operators", onlyStable}, {"community-operators-prod", fileBasedCatalog}}

// write writes the operator's directory with the bundle of one version.
func (h hub) write(dir, bundle string, published []releases.Release) error {
	content, err := manifests.GetBundleFromDir(bundle)
	if err != nil {
		return err
	}
	number := content.CSV.Spec.Version.String()
	version := filepath.Join(dir, number)
	if err := os.CopyFS(version, os.DirFS(bundle)); err != nil {
		return err
	}
	published = slices.DeleteFunc(slices.Clone(published), func(r releases.Release) bool { return !isForHubs(r) })
	ci, err := os.ReadFile(filepath.Join("config/operatorhub", h.name, "ci.yaml"))
	if err != nil {
		return err
	}
	return errors.Join(writeFile(filepath.Join(dir, "ci.yaml"), ci),
		annotateOpenShiftVersions(version, content.CSV.Spec.MinKubeVersion),
		h.adapt(dir, number, content.Channels, published))
}

// annotateOpenShiftVersions names the oldest OpenShift release that contains the bundle's minKubeVersion: OpenShift 4.17
// contains Kubernetes 1.30. The OpenShift community catalog requires the annotation; OperatorHub.io ignores it.
func annotateOpenShiftVersions(version, minKubeVersion string) error {
	minimum, err := semver.Parse(minKubeVersion)
	if err != nil {
		return fmt.Errorf("%s: spec.minKubeVersion: %w", version, err)
	}
	return editAnnotations(version, func(text string) string {
		return text + fmt.Sprintf("  com.redhat.openshift.versions: v4.%d\n", minimum.Minor-13)
	})
}

var channelAnnotations = regexp.MustCompile(`(operators\.operatorframework\.io\.bundle\.channels?\.(?:default\.)?v1): .*`)

// onlyStable offers the version in the channel stable only. In semver-mode every version is in every channel of its
// metadata at once, and upgrades through skipRange: that is what the channel stable means, and no other.
func onlyStable(dir, version string, channels []string, _ []releases.Release) error {
	stable := slices.IndexFunc(channels, isStable)
	if stable < 0 {
		return fmt.Errorf("version %s is in %v: only versions in a channel stable-v<major> are for this hub", version, channels)
	}
	return editAnnotations(filepath.Join(dir, version), func(text string) string {
		return channelAnnotations.ReplaceAllString(text, "$1: "+channels[stable])
	})
}

func isStable(channel string) bool { return strings.HasPrefix(channel, "stable-") }

// isForHubs reports whether the hubs have a published release. They have no candidates.
func isForHubs(release releases.Release) bool { return slices.ContainsFunc(release.Channels, isStable) }

// hubBundles is the repository into which the pipeline of OpenShift's community catalog pushes bundles.
const hubBundles = "quay.io/community-operator-pipeline-prod/echo-operator:"

// fileBasedCatalog writes the template of the published releases, and the places of this version in it. The
// pipeline adds the version to the template after the merge.
func fileBasedCatalog(dir, version string, channels []string, published []releases.Release) error {
	type entry map[string]any
	number := semver.MustParse(version)
	first := number
	if len(published) > 0 {
		first = published[0].Semver()
	}
	inChannel := map[string][]entry{}
	// place returns what a version replaces and skips in a channel.
	place := func(number semver.Version, channel string) entry {
		e := entry{}
		before := inChannel[channel]
		if len(before) > 0 {
			e["replaces"] = before[len(before)-1]["name"]
		}
		if skipped := releases.SkipRange(channel, len(before) == 0, first, number); skipped != "" {
			e["skipRange"] = skipped
		}
		return e
	}
	var bundles, places []entry
	for _, release := range published {
		name := "echo-operator.v" + release.Version
		for _, channel := range release.Channels {
			e := place(release.Semver(), channel)
			e["name"] = name
			inChannel[channel] = append(inChannel[channel], e)
		}
		bundles = append(bundles, entry{"schema": "olm.bundle", "name": name, "image": hubBundles + "v" + release.Version})
	}
	for _, channel := range channels {
		e := place(number, channel)
		e["template_name"], e["channels"] = "basic.yaml", []string{channel}
		places = append(places, e)
	}
	config := entry{"catalog_templates": places}
	if i := slices.IndexFunc(channels, isStable); i >= 0 {
		config["defaultChannel"] = channels[i]
	}

	entries := []entry{{"schema": "olm.package", "name": "echo-operator", "defaultChannel": config["defaultChannel"]}}
	for _, channel := range slices.Sorted(maps.Keys(inChannel)) {
		entries = append(entries, entry{"schema": "olm.channel", "package": "echo-operator", "name": channel, "entries": inChannel[channel]})
	}
	return errors.Join(
		writeYAML(filepath.Join(dir, version, "release-config.yaml"), config),
		writeYAML(filepath.Join(dir, "catalog-templates/basic.yaml"),
			entry{"schema": "olm.template.basic", "entries": append(entries, bundles...)}))
}

// editAnnotations edits the text of a bundle's metadata/annotations.yaml.
func editAnnotations(version string, edit func(string) string) error {
	file := filepath.Join(version, "metadata/annotations.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return writeFile(file, []byte(edit(string(text))))
}

func writeYAML(file string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return writeFile(file, text)
}

func writeFile(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

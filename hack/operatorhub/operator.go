package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/manifests"
	"sigs.k8s.io/yaml"
)

// operator is the directory of one operator in the community-operators repository.
type operator struct {
	name    string
	ci      map[string]any
	bundles []bundle // sorted by version
}

type bundle struct {
	*manifests.Bundle
	dir         string
	annotations map[string]string
}

func load(dir string) (operator, error) {
	o := operator{name: filepath.Base(dir)}
	if err := readYAML(filepath.Join(dir, "ci.yaml"), &o.ci); err != nil {
		return o, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return o, err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		b := bundle{dir: filepath.Join(dir, entry.Name())}
		if b.Bundle, err = manifests.GetBundleFromDir(b.dir); err != nil {
			return o, fmt.Errorf("%s: %w", b.dir, err)
		}
		var metadata struct{ Annotations map[string]string }
		if err := readYAML(filepath.Join(b.dir, "metadata/annotations.yaml"), &metadata); err != nil {
			return o, err
		}
		b.annotations = metadata.Annotations
		o.bundles = append(o.bundles, b)
	}
	if len(o.bundles) == 0 {
		return o, fmt.Errorf("%s has no bundle", dir)
	}
	slices.SortFunc(o.bundles, func(a, b bundle) int { return a.version().Compare(b.version()) })
	return o, nil
}

func (b bundle) version() semver.Version { return b.CSV.Spec.Version.Version }

func (b bundle) channels() []string {
	channels := strings.Split(b.annotations["operators.operatorframework.io.bundle.channels.v1"], ",")
	for i := range channels {
		channels[i] = strings.TrimSpace(channels[i])
	}
	return channels
}

// replaced returns the names of the bundles in channel that upgrade to b.
func (o operator) replaced(b bundle, channel []bundle) []string {
	if o.ci["updateGraph"] == "semver-mode" {
		if i := slices.IndexFunc(channel, func(other bundle) bool { return other.CSV.Name == b.CSV.Name }); i > 0 {
			return []string{channel[i-1].CSV.Name}
		}
		return nil
	}
	names := slices.Clone(b.CSV.Spec.Skips)
	if b.CSV.Spec.Replaces != "" {
		names = append(names, b.CSV.Spec.Replaces)
	}
	if skipped, err := semver.ParseRange(b.CSV.Annotations["olm.skipRange"]); err == nil {
		for _, other := range channel {
			if skipped(other.version()) {
				names = append(names, other.CSV.Name)
			}
		}
	}
	return names
}

// inChannels returns the bundles of each channel, sorted by version.
func (o operator) inChannels() map[string][]bundle {
	channels := map[string][]bundle{}
	for _, b := range o.bundles {
		for _, channel := range b.channels() {
			channels[channel] = append(channels[channel], b)
		}
	}
	return channels
}

func readYAML(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/api/pkg/manifests"
	"sigs.k8s.io/yaml"
)

// operator is the directory of one operator in the repository of a hub.
type operator struct {
	name     string
	ci       ciConfig
	ciError  error             // ci.yaml does not comply with its schema.
	template []templateEntry   // of catalog-templates/basic.yaml
	texts    map[string]string // the files in catalog-templates
	bundles  []bundle          // sorted by version
}

// ciConfig has the fields of ci.yaml that the pipelines accept from a community operator.
type ciConfig struct {
	UpdateGraph string   `json:"updateGraph,omitempty"`
	Reviewers   []string `json:"reviewers,omitempty"`
	FBC         *struct {
		Enabled        bool `json:"enabled"`
		CatalogMapping []struct {
			TemplateName string   `json:"template_name"`
			Type         string   `json:"type"`
			CatalogNames []string `json:"catalog_names"`
		} `json:"catalog_mapping"`
	} `json:"fbc,omitempty"`
}

// releaseConfig is the file release-config.yaml of a bundle: the places of the version in the catalogs.
type releaseConfig struct {
	Merge            *bool           `json:"merge,omitempty"`
	DefaultChannel   string          `json:"defaultChannel,omitempty"`
	CatalogTemplates []templatePlace `json:"catalog_templates"`
}

type templatePlace struct {
	TemplateName string   `json:"template_name"`
	Channels     []string `json:"channels"`
	Replaces     string   `json:"replaces,omitempty"`
	Skips        []string `json:"skips,omitempty"`
	SkipRange    string   `json:"skipRange,omitempty"`
}

// templateEntry is one entry of a basic template.
type templateEntry struct {
	Schema, Name, Image string
	Entries             []struct {
		Name, Replaces, SkipRange string
		Skips                     []string
	}
}

type bundle struct {
	*manifests.Bundle
	dir         string
	annotations map[string]string
	release     *releaseConfig // nil without release-config.yaml
	// releaseError says how release-config.yaml does not comply with its schema.
	releaseError error
}

func load(dir string) (operator, error) {
	o := operator{name: filepath.Base(dir), texts: map[string]string{}}
	o.ciError = readStrictYAML(filepath.Join(dir, "ci.yaml"), &o.ci)
	templates, err := filepath.Glob(filepath.Join(dir, "catalog-templates/*"))
	if err != nil {
		return o, err
	}
	for _, file := range templates {
		text, err := os.ReadFile(file)
		if err != nil {
			return o, err
		}
		o.texts[filepath.Base(file)] = string(text)
		var template struct{ Entries []templateEntry }
		if err := yaml.Unmarshal(text, &template); err != nil {
			return o, fmt.Errorf("%s: %w", file, err)
		}
		o.template = append(o.template, template.Entries...)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return o, err
	}
	for _, entry := range entries {
		if !entry.IsDir() || entry.Name() == "catalog-templates" {
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
		var config releaseConfig
		if err := readStrictYAML(filepath.Join(b.dir, "release-config.yaml"), &config); !errors.Is(err, fs.ErrNotExist) {
			b.release, b.releaseError = &config, err
		}
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
	channels := strings.Split(b.annotations[channelsAnnotation], ",")
	for i := range channels {
		channels[i] = strings.TrimSpace(channels[i])
	}
	return channels
}

// graph returns, for each channel, the versions in it, sorted, and for each of them the versions that
// upgrade to it.
func (o operator) graph() map[string]map[string][]string {
	graph := map[string]map[string][]string{}
	add := func(channel, name string, replaced ...string) {
		if graph[channel] == nil {
			graph[channel] = map[string][]string{}
		}
		graph[channel][name] = append(graph[channel][name], replaced...)
	}
	if o.ci.FBC == nil {
		for channel, bundles := range o.inChannels() {
			for i, b := range bundles {
				add(channel, b.CSV.Name, o.inRange(b.CSV.Annotations["olm.skipRange"], bundles)...)
				switch {
				case o.ci.UpdateGraph == "replaces-mode":
					add(channel, b.CSV.Name, b.CSV.Spec.Skips...)
					if b.CSV.Spec.Replaces != "" {
						add(channel, b.CSV.Name, b.CSV.Spec.Replaces)
					}
				case i > 0:
					add(channel, b.CSV.Name, bundles[i-1].CSV.Name)
				}
			}
		}
		return graph
	}
	for _, channel := range o.template {
		for _, entry := range channel.Entries {
			add(channel.Name, entry.Name, append(entry.Skips, o.inRange(entry.SkipRange, o.bundles)...)...)
			if entry.Replaces != "" {
				add(channel.Name, entry.Name, entry.Replaces)
			}
		}
	}
	for _, b := range o.bundles {
		if b.release == nil || o.inTemplate(b.CSV.Name) {
			continue
		}
		for _, place := range b.release.CatalogTemplates {
			for _, channel := range place.Channels {
				add(channel, b.CSV.Name, append(place.Skips, o.inRange(place.SkipRange, o.bundles)...)...)
				if place.Replaces != "" {
					add(channel, b.CSV.Name, place.Replaces)
				}
			}
		}
	}
	return graph
}

func (o operator) inTemplate(name string) bool {
	return slices.ContainsFunc(o.template, func(entry templateEntry) bool { return entry.Schema == "olm.bundle" && entry.Name == name })
}

// inRange returns the names of the bundles whose versions are in the range, which may be empty.
func (o operator) inRange(versions string, bundles []bundle) (names []string) {
	skipped, err := semver.ParseRange(versions)
	if err != nil {
		return nil
	}
	for _, b := range bundles {
		if skipped(b.version()) {
			names = append(names, b.CSV.Name)
		}
	}
	return names
}

// inChannels returns the bundles of each channel of their metadata, sorted by version.
func (o operator) inChannels() map[string][]bundle {
	channels := map[string][]bundle{}
	for _, b := range o.bundles {
		for _, channel := range b.channels() {
			channels[channel] = append(channels[channel], b)
		}
	}
	return channels
}

func readStrictYAML(file string, into any) error { return decode(file, into, yaml.UnmarshalStrict) }

func readYAML(file string, into any) error { return decode(file, into, yaml.Unmarshal) }

func decode(file string, into any, unmarshal func([]byte, any, ...yaml.JSONOpt) error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

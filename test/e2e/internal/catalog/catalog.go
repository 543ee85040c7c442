// Package catalog reads a file-based catalog: its versions, and the upgrades between them.
package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
	"github.com/operator-framework/operator-registry/alpha/property"
)

const namePrefix = "echo-operator.v"

// Catalog is a file-based catalog.
type Catalog struct {
	Channels []Channel
	bundles  map[string]declcfg.Bundle
}

// Channel is a channel of the package.
type Channel struct {
	Name    string
	Entries []Entry
}

// Entry is one version in a channel, with the rules for the versions that it replaces.
type Entry declcfg.ChannelEntry

// Edge is one upgrade that a channel offers.
type Edge struct {
	Channel  string
	From, To semver.Version
}

// Read reads the catalog in a directory.
func Read(dir string) (Catalog, error) {
	catalog := Catalog{bundles: map[string]declcfg.Bundle{}}
	config, err := declcfg.LoadFS(context.Background(), os.DirFS(dir))
	if err != nil || len(config.Bundles) == 0 {
		return catalog, fmt.Errorf("no catalog in %s: %w", dir, err)
	}
	for _, channel := range config.Channels {
		read := Channel{Name: channel.Name}
		for _, entry := range channel.Entries {
			if _, err := semver.Parse(strings.TrimPrefix(entry.Name, namePrefix)); err != nil {
				return catalog, fmt.Errorf("%s: bundle name %s, want %sX.Y.Z", dir, entry.Name, namePrefix)
			}
			read.Entries = append(read.Entries, Entry(entry))
		}
		catalog.Channels = append(catalog.Channels, read)
	}
	for _, bundle := range config.Bundles {
		catalog.bundles[bundle.Name] = bundle
	}
	return catalog, nil
}

// Version returns the version of an entry. Read has checked its name.
func (e Entry) Version() semver.Version {
	return semver.MustParse(strings.TrimPrefix(e.Name, namePrefix))
}

// Follows reports whether the entry is an upgrade from the version.
func (e Entry) Follows(version semver.Version) bool {
	name := namePrefix + version.String()
	if e.Replaces == name || slices.Contains(e.Skips, name) {
		return true
	}
	if e.SkipRange == "" {
		return false
	}
	skipped, err := semver.ParseRange(e.SkipRange)
	return err == nil && skipped(version)
}

// Versions returns the channel's versions, the oldest first.
func (c Channel) Versions() []semver.Version {
	var versions []semver.Version
	for _, entry := range c.Entries {
		versions = append(versions, entry.Version())
	}
	slices.SortFunc(versions, semver.Version.Compare)
	return versions
}

// Head returns the newest version of the channel.
func (c Channel) Head() semver.Version {
	versions := c.Versions()
	return versions[len(versions)-1]
}

// Next returns the newest version to which the channel upgrades from a version in one step.
func (c Channel) Next(from semver.Version) (semver.Version, bool) {
	next, found := from, false
	for _, entry := range c.Entries {
		if entry.Follows(from) && entry.Version().GT(next) {
			next, found = entry.Version(), true
		}
	}
	return next, found
}

// Edges returns every upgrade between two versions, each with the most stable channel that offers
// it: the last one.
func (c Catalog) Edges() []Edge {
	found := map[string]Edge{}
	for _, channel := range c.Channels {
		for _, to := range channel.Entries {
			for _, from := range channel.Versions() {
				if to.Follows(from) {
					found[from.String()+" "+to.Name] = Edge{channel.Name, from, to.Version()}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Edge) int {
		return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To))
	})
}

// Versions returns all versions of the catalog, the oldest first.
func (c Catalog) Versions() []semver.Version {
	var versions []semver.Version
	for name := range c.bundles {
		versions = append(versions, Entry{Name: name}.Version())
	}
	slices.SortFunc(versions, semver.Version.Compare)
	return versions
}

// Offering returns the most stable channel that offers a version: the last one.
func (c Catalog) Offering(version semver.Version) Channel {
	var offering Channel
	for _, channel := range c.Channels {
		if slices.ContainsFunc(channel.Versions(), version.Equals) {
			offering = channel
		}
	}
	return offering
}

// Channel returns the channel of that name, or an empty channel.
func (c Catalog) Channel(name string) Channel {
	for _, channel := range c.Channels {
		if channel.Name == name {
			return channel
		}
	}
	return Channel{}
}

// Image returns the operator's image in a version.
func (c Catalog) Image(version semver.Version) string {
	properties, err := property.Parse(c.bundles[namePrefix+version.String()].Properties)
	if err != nil || len(properties.CSVMetadatas) == 0 {
		return ""
	}
	return properties.CSVMetadatas[0].Annotations["containerImage"]
}

// RelatedImages returns all images that a version needs, including its bundle.
func (c Catalog) RelatedImages(version semver.Version) []string {
	var images []string
	for _, related := range c.bundles[namePrefix+version.String()].RelatedImages {
		images = append(images, related.Image)
	}
	slices.Sort(images)
	return images
}

// Package catalog reads a file-based catalog: its versions, and the upgrades between them.
package catalog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const namePrefix = "echo-operator.v"

// Catalog is a file-based catalog.
type Catalog struct {
	Channels []Channel
	// images contains the related images of each bundle by name. The bundle's own image has the name "".
	images map[string]map[string]string
	// operators contains the operator's image of each bundle.
	operators map[string]string
}

// Channel is a channel of the package.
type Channel struct {
	Name    string
	Entries []Entry
}

// Entry is one version in a channel, with the rules for the versions that it replaces.
type Entry struct {
	Name      string
	Replaces  string
	Skips     []string
	SkipRange string
}

// Edge is one upgrade that a channel offers.
type Edge struct {
	Channel  string
	From, To semver.Version
}

// Read reads the catalog in a directory.
func Read(dir string) (Catalog, error) {
	catalog := Catalog{images: map[string]map[string]string{}, operators: map[string]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) == 0 {
		return catalog, fmt.Errorf("no catalog in %s: %w", dir, err)
	}
	for _, file := range files {
		if err := catalog.read(file); err != nil {
			return catalog, fmt.Errorf("%s: %w", file, err)
		}
	}
	return catalog, nil
}

func (c *Catalog) read(file string) error {
	text, err := os.ReadFile(file) // #nosec G304 -- a file of this repository
	if err != nil {
		return err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var blob struct {
			Schema, Name  string
			Entries       []Entry
			RelatedImages []struct{ Name, Image string }
			Properties    []struct {
				Type  string
				Value struct {
					Annotations struct{ ContainerImage string }
				}
			}
		}
		if err := decoder.Decode(&blob); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch blob.Schema {
		case "olm.channel":
			c.Channels = append(c.Channels, Channel{blob.Name, blob.Entries})
			for _, entry := range blob.Entries {
				if _, err := versionOf(entry.Name); err != nil {
					return err
				}
			}
		case "olm.bundle":
			c.images[blob.Name] = map[string]string{}
			for _, related := range blob.RelatedImages {
				c.images[blob.Name][related.Name] = related.Image
			}
			for _, property := range blob.Properties {
				if property.Type == "olm.csv.metadata" {
					c.operators[blob.Name] = property.Value.Annotations.ContainerImage
				}
			}
		}
	}
}

func versionOf(name string) (semver.Version, error) {
	version, found := strings.CutPrefix(name, namePrefix)
	if !found {
		return semver.Version{}, fmt.Errorf("bundle name %s, want %sX.Y.Z", name, namePrefix)
	}
	return semver.Parse(version)
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
	for name := range c.images {
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
	return c.operators[namePrefix+version.String()]
}

// RelatedImages returns all images that a version needs, including its bundle.
func (c Catalog) RelatedImages(version semver.Version) []string {
	return slices.Sorted(maps.Values(c.images[namePrefix+version.String()]))
}

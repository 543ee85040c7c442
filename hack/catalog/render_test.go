package main

import (
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
)

func TestChannelsOfReleases(t *testing.T) {
	versions := func(list ...string) (versions []version) {
		for _, text := range list {
			number, channels, _ := strings.Cut(text, " ")
			v := version{Version: semver.MustParse(number), channels: strings.Fields(channels)}
			v.bundle = &declcfg.DeclarativeConfig{Bundles: []declcfg.Bundle{{Name: v.name()}}}
			versions = append(versions, v)
		}
		return versions
	}
	t.Chdir("../..")
	for name, c := range map[string]struct {
		versions []version
		// want has a line for each entry: channel, version, what it replaces, and what it skips.
		want        string
		wantDefault string
	}{
		"candidate steps, fast jumps, stable skips": {
			versions("0.5.0 candidate-v0 fast-v0 stable-v0", "0.6.0 candidate-v0 fast-v0", "0.7.0 candidate-v0 fast-v0 stable-v0"),
			`candidate-v0 0.5.0
candidate-v0 0.6.0 replaces 0.5.0
candidate-v0 0.7.0 replaces 0.6.0
fast-v0 0.5.0
fast-v0 0.6.0 replaces 0.5.0 skips >=0.5.0 <0.6.0
fast-v0 0.7.0 replaces 0.6.0 skips >=0.5.0 <0.7.0
stable-v0 0.5.0
stable-v0 0.7.0 replaces 0.5.0 skips >=0.5.0 <0.7.0`, "stable-v0"},
		"a new major version has channels of its own, which earlier versions reach": {
			versions("0.5.0 candidate-v0 fast-v0", "1.0.0 candidate-v1 fast-v1", "1.1.0 candidate-v1 fast-v1"),
			`candidate-v0 0.5.0
fast-v0 0.5.0
candidate-v1 1.0.0 skips >=0.5.0 <1.0.0
candidate-v1 1.1.0 replaces 1.0.0
fast-v1 1.0.0 skips >=0.5.0 <1.0.0
fast-v1 1.1.0 replaces 1.0.0 skips >=0.5.0 <1.1.0`, "fast-v1"},
		"a release candidate is no default": {
			versions("0.5.0 candidate-v0 fast-v0", "1.0.0-rc.1 candidate-v1"),
			`candidate-v0 0.5.0
fast-v0 0.5.0
candidate-v1 1.0.0-rc.1 skips >=0.5.0 <1.0.0-rc.1`, "fast-v0"},
		"only a release candidate": {versions("0.5.0-rc.1 candidate-v0"), "candidate-v0 0.5.0-rc.1", "candidate-v0"},
	} {
		t.Run(name, func(t *testing.T) {
			catalog, err := assemble(c.versions)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, channel := range catalog.Channels {
				for _, entry := range channel.Entries {
					line := channel.Name + " " + entry.Name
					if entry.Replaces != "" {
						line += " replaces " + entry.Replaces
					}
					if entry.SkipRange != "" {
						line += " skips " + entry.SkipRange
					}
					got = append(got, strings.ReplaceAll(line, packageName+".v", ""))
				}
			}
			if got := strings.Join(got, "\n"); got != c.want {
				t.Errorf("channels:\n%s\nwant:\n%s", got, c.want)
			}
			if got := catalog.Packages[0]; got.DefaultChannel != c.wantDefault || got.Description == "" || len(got.Icon.Data) == 0 {
				t.Errorf("default channel %s, description %q, icon of %d bytes; want channel %s, and both others",
					got.DefaultChannel, got.Description, len(got.Icon.Data), c.wantDefault)
			}
		})
	}
}

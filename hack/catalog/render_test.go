package main

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
	"github.com/operator-framework/operator-registry/alpha/declcfg"
)

func TestChannelsOfReleases(t *testing.T) {
	t.Chdir("../..")
	// An entry is: channel, version, the version that it replaces, the range that it skips.
	for name, c := range map[string]struct{ releases, entries, wantDefault string }{
		"candidate steps, stable skips": {"1.0.0-rc.1 candidate-v1, 1.0.0 candidate-v1 stable-v1, 1.1.0 candidate-v1 stable-v1, 1.2.0 stable-v1",
			"candidate-v1 1.0.0-rc.1 - -, candidate-v1 1.0.0 1.0.0-rc.1 -, candidate-v1 1.1.0 1.0.0 -, " +
				"stable-v1 1.0.0 - >=1.0.0-rc.1 <1.0.0, stable-v1 1.1.0 1.0.0 >=1.0.0-rc.1 <1.1.0, " +
				"stable-v1 1.2.0 1.1.0 >=1.0.0-rc.1 <1.2.0", "stable-v1"},
		"earlier versions reach the channels of a new major version": {"1.0.0 stable-v1, 2.0.0 candidate-v2 stable-v2, 2.1.0 stable-v2",
			"candidate-v2 2.0.0 - >=1.0.0 <2.0.0, stable-v1 1.0.0 - -, stable-v2 2.0.0 - >=1.0.0 <2.0.0, " +
				"stable-v2 2.1.0 2.0.0 >=1.0.0 <2.1.0", "stable-v2"},
		"a release candidate is no default": {"1.0.0 stable-v1, 2.0.0-rc.1 candidate-v2",
			"candidate-v2 2.0.0-rc.1 - >=1.0.0 <2.0.0-rc.1, stable-v1 1.0.0 - -", "stable-v1"},
		"a release candidate is the default before the first release": {"1.0.0-rc.1 candidate-v1", "candidate-v1 1.0.0-rc.1 - -", "candidate-v1"},
	} {
		t.Run(name, func(t *testing.T) {
			var versions []version
			for release := range strings.SplitSeq(c.releases, ", ") {
				fields := strings.Fields(release)
				v := version{Version: semver.MustParse(fields[0]), channels: fields[1:]}
				v.bundle = &declcfg.DeclarativeConfig{Bundles: []declcfg.Bundle{{Name: v.name()}}}
				versions = append(versions, v)
			}
			catalog, err := assemble(versions)
			if err != nil {
				t.Fatal(err)
			}
			var entries []string
			for _, channel := range catalog.Channels {
				for _, e := range channel.Entries {
					entries = append(entries, fmt.Sprint(channel.Name, " ", e.Name, " ", cmp.Or(e.Replaces, "-"), " ", cmp.Or(e.SkipRange, "-")))
				}
			}
			if got := strings.ReplaceAll(strings.Join(entries, ", "), packageName+".v", ""); got != c.entries {
				t.Errorf("entries:\n%s\nwant:\n%s", got, c.entries)
			}
			if got := catalog.Packages[0].DefaultChannel; got != c.wantDefault {
				t.Errorf("default channel %s, want %s", got, c.wantDefault)
			}
		})
	}
}

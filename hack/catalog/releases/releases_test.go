package releases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blang/semver/v4"
)

func TestReleaseReturnsFilesOfItsCommit(t *testing.T) {
	releases, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range releases {
		dir := t.TempDir()
		if err := release.Extract(dir, "bundle"); err != nil {
			t.Fatal(err)
		}
		csv, err := filepath.Glob(filepath.Join(dir, "manifests/*.clusterserviceversion.yaml"))
		if err != nil || len(csv) != 1 {
			t.Fatalf("release %s: found ClusterServiceVersions %v, want one: %v", release.Version, csv, err)
		}
		text, err := release.File("bundle/manifests/" + filepath.Base(csv[0]))
		if err != nil {
			t.Fatal(err)
		}
		extracted, err := os.ReadFile(csv[0])
		if err != nil || string(extracted) != string(text) {
			t.Errorf("release %s: Extract and File return different content: %v", release.Version, err)
		}
		if want := "\n  version: " + release.Version + "\n"; !strings.Contains(string(text), want) {
			t.Errorf("commit %s: ClusterServiceVersion is not that of version %s", release.Commit, release.Version)
		}
	}
}

func TestLoadReportsInvalidList(t *testing.T) {
	release := "- {version: 1.2.3, rollsServers: none, date: 2026-01-02, channels: [fast-v1], commit: " + strings.Repeat("0", 40) +
		", bundle: \"sha256:" + strings.Repeat("0", 64) + "\"}"
	change := func(from, to string) string { return strings.Replace(release, from, to, 1) }
	for name, c := range map[string]struct{ list, want string }{
		"missing history":    {release, "run `git fetch --unshallow`"},
		"not a version":      {change("1.2.3", "1.2"), "version must be X.Y.Z"},
		"unknown servers":    {change("none", "some"), "it must be none, default or all"},
		"no digest":          {change("sha256:", "md5:"), "it must be the digest"},
		"no channel":         {change("[fast-v1]", "[]"), "channels must name"},
		"date with the time": {change("2026-01-02", "2026-01-02T00:00:00Z"), "date must be YYYY-MM-DD"},
		"unknown field":      {change("commit", "comit"), `unknown field "comit"`},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if _, err := git(root, "init", "-q"); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(root, List)
			if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.list), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := load(root, List); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("load returned error %v, want one that contains %q", err, c.want)
			}
		})
	}
}

func TestUpgradeDoesWhatAnyPassedVersionDoes(t *testing.T) {
	releases := []Release{
		{Version: "0.1.0", RollsServers: AllServers}, {Version: "0.2.0", RollsServers: DefaultServers},
		{Version: "0.3.0", RollsServers: NoServers}, {Version: "0.4.0", RollsServers: AllServers, TightensCRD: true},
	}
	for _, test := range []struct {
		from, to string
		servers  Servers
		tightens bool
	}{
		{"0.1.0", "0.2.0", DefaultServers, false}, {"0.1.0", "0.3.0", DefaultServers, false}, {"0.2.0", "0.3.0", NoServers, false},
		{"0.3.0", "0.4.0", AllServers, true}, {"0.1.0", "0.4.0", AllServers, true}, {"0.4.0", "0.4.1", NoServers, false},
	} {
		got := upgrade(releases, semver.MustParse(test.from), semver.MustParse(test.to))
		if got.RollsServers != test.servers || got.TightensCRD != test.tightens {
			t.Errorf("upgrade from %s to %s restarts %s, tightens the CRD: %t, want %s, %t",
				test.from, test.to, got.RollsServers, got.TightensCRD, test.servers, test.tightens)
		}
	}
}

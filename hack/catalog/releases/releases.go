// Package releases reads the lists of releases, and the files of each release from the history of this
// repository.
package releases

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// The lists of releases, relative to the root of the repository.
const (
	// List lists the published releases, and the version of this tree.
	List = "catalog/releases.yaml"
	// TestList lists earlier versions that were never published. The tests upgrade from them.
	TestList = "test/catalog/releases.yaml"
)

// Servers are the pods of Echoes that an upgrade restarts.
type Servers string

// Each value includes the earlier ones.
const (
	NoServers      Servers = "none"
	DefaultServers Servers = "default" // Those of the default image.
	AllServers     Servers = "all"
)

// Release is one released version.
type Release struct {
	Version string `json:"version"`
	// Commit is the hash of the commit that the release was built from. The version of this tree
	// has none until it is released.
	Commit string `json:"commit"`
	Date   string `json:"date"`
	// Bundle is the digest of the bundle's image.
	Bundle string `json:"bundle"`
	// Channels offer the release.
	Channels []string `json:"channels"`
	// Deprecated is the message of a version that users should replace.
	Deprecated string `json:"deprecated,omitempty"`
	// RollsServers states which pods of Echoes the upgrade to this release restarts.
	RollsServers Servers `json:"rollsServers"`
	// TightensCRD states whether the CRD rejects new Echoes that an earlier version accepted.
	TightensCRD bool `json:"tightensCRD,omitempty"`

	root string
}

// Published returns the published releases of the repository that contains the working directory, oldest
// first. It fails if the clone lacks the commit of a release.
func Published() ([]Release, error) { return loadFrom(List) }

// Load returns all releases: those of the tests, and the published ones.
func Load() ([]Release, error) { return loadFrom(TestList, List) }

func loadFrom(lists ...string) ([]Release, error) {
	root, err := top()
	if err != nil {
		return nil, err
	}
	return load(root, lists...)
}

func top() (string, error) {
	root, err := git(".", "rev-parse", "--show-toplevel")
	return strings.TrimSpace(string(root)), err
}

func load(root string, lists ...string) ([]Release, error) {
	releases, err := read(root, lists...)
	if err != nil {
		return nil, err
	}
	releases = slices.DeleteFunc(releases, func(r Release) bool { return r.Commit == "" })
	for i := range releases {
		release := &releases[i]
		release.root = root
		if _, err := git(root, "cat-file", "-e", release.Commit+"^{commit}"); err != nil {
			return nil, fmt.Errorf("clone lacks commit %s of release %s: run `git fetch --unshallow`", release.Commit, release.Version)
		}
	}
	return releases, nil
}

// read returns the releases of the lists, sorted by version. One without a commit is the version of this tree.
func read(root string, lists ...string) ([]Release, error) {
	var releases []Release
	for _, list := range lists {
		text, err := os.ReadFile(filepath.Join(root, list)) // #nosec G304 -- a file of this repository
		if err != nil {
			return nil, err
		}
		var listed []Release
		if err := yaml.UnmarshalStrict(text, &listed); err != nil {
			return nil, fmt.Errorf("%s: %w", list, err)
		}
		for _, release := range listed {
			if err := release.check(); err != nil {
				return nil, fmt.Errorf("%s: version %s: %w", list, release.Version, err)
			}
		}
		releases = append(releases, listed...)
	}
	slices.SortStableFunc(releases, func(a, b Release) int { return a.Semver().Compare(b.Semver()) })
	return releases, nil
}

var digest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (r Release) check() error {
	if _, err := semver.Parse(r.Version); err != nil {
		return fmt.Errorf("version must be X.Y.Z: %w", err)
	}
	if !slices.Contains([]Servers{NoServers, DefaultServers, AllServers}, r.RollsServers) {
		return fmt.Errorf("rollsServers is %q: it must be none, default or all", r.RollsServers)
	}
	if r.Commit == "" {
		return nil
	}
	if !digest.MatchString(r.Bundle) {
		return fmt.Errorf("bundle is %q: it must be the digest of the image, with the prefix sha256", r.Bundle)
	}
	if len(r.Channels) == 0 {
		return errors.New("channels must name the channels that offer it")
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		return fmt.Errorf("date must be YYYY-MM-DD: %w", err)
	}
	return nil
}

// Semver returns the version. The functions of this package return only valid ones.
func (r Release) Semver() semver.Version { return semver.MustParse(r.Version) }

// Upgrade returns what an upgrade between two versions does: what the versions after from, up to and
// including to, do. Only RollsServers and TightensCRD are set.
func Upgrade(from, to semver.Version) (Release, error) {
	root, err := top()
	if err != nil {
		return Release{}, err
	}
	releases, err := read(root, TestList, List)
	return upgrade(releases, from, to), err
}

func upgrade(releases []Release, from, to semver.Version) Release {
	sum := Release{RollsServers: NoServers}
	for _, release := range releases {
		if version := release.Semver(); version.LTE(from) || version.GT(to) {
			continue
		}
		if release.RollsServers == AllServers || sum.RollsServers == NoServers {
			sum.RollsServers = release.RollsServers
		}
		sum.TightensCRD = sum.TightensCRD || release.TightensCRD
	}
	return sum
}

// SkipRange returns the range of the versions that upgrade to a version directly, or nothing. In a channel other than
// candidate, these are all earlier ones since the first version of the package. So they are for the version that opens
// a channel, because users change to that channel from an earlier one.
func SkipRange(channel string, opens bool, first, version semver.Version) string {
	if version.LTE(first) || (strings.HasPrefix(channel, "candidate") && !opens) {
		return ""
	}
	return fmt.Sprintf(">=%s <%s", first, version)
}

// File returns a file of the release. The path is relative to the root of the repository.
func (r Release) File(path string) ([]byte, error) {
	return git(r.root, "show", r.Commit+":"+path)
}

// Extract writes a folder of the release into an existing directory. An empty folder means the whole tree.
func (r Release) Extract(dir, folder string) error {
	archive, err := git(r.root, "archive", r.Commit+":"+folder)
	if err != nil {
		return err
	}
	tar := exec.Command("tar", "-x", "-C", dir) // #nosec G204 -- a directory of the caller
	tar.Stdin = bytes.NewReader(archive)
	if text, err := tar.CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, text)
	}
	return nil
}

func git(dir string, args ...string) ([]byte, error) {
	command := exec.Command("git", args...) // #nosec G204 -- arguments come from this repository
	command.Dir = dir
	output, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return output, err
}

// Package releases reads catalog/releases.yaml, and the files of each release from the history of this
// repository.
package releases

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// List is the file that lists the releases, relative to the root of the repository.
const List = "catalog/releases.yaml"

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
	// RollsServers states which pods of Echoes the upgrade to this release restarts.
	RollsServers Servers `json:"rollsServers"`
	// TightensCRD states whether the CRD rejects new Echoes that an earlier version accepted.
	TightensCRD bool `json:"tightensCRD,omitempty"`

	root string
}

// Load returns the releases of the repository that contains the working directory, oldest first. It fails
// if the clone lacks the commit of a release.
func Load() ([]Release, error) {
	root, err := top()
	if err != nil {
		return nil, err
	}
	return load(root)
}

func top() (string, error) {
	root, err := git(".", "rev-parse", "--show-toplevel")
	return strings.TrimSpace(string(root)), err
}

func load(root string) ([]Release, error) {
	releases, err := read(root)
	if err != nil {
		return nil, err
	}
	releases = slices.DeleteFunc(releases, func(r Release) bool { return r.Commit == "" })
	if len(releases) == 0 {
		return nil, fmt.Errorf("%s lists no release", List)
	}
	for i := range releases {
		release := &releases[i]
		release.root = root
		if _, err := git(root, "cat-file", "-e", release.Commit+"^{commit}"); err != nil {
			return nil, fmt.Errorf("%s: clone lacks commit %s of release %s: run `git fetch --unshallow`",
				List, release.Commit, release.Version)
		}
	}
	return releases, nil
}

// read returns the releases, and the version of this tree, without their commits.
func read(root string) ([]Release, error) {
	text, err := os.ReadFile(filepath.Join(root, List)) // #nosec G304 -- a file of this repository
	if err != nil {
		return nil, err
	}
	var releases []Release
	if err := yaml.UnmarshalStrict(text, &releases); err != nil {
		return nil, fmt.Errorf("%s: %w", List, err)
	}
	for _, release := range releases {
		if !slices.Contains([]Servers{NoServers, DefaultServers, AllServers}, release.RollsServers) {
			return nil, fmt.Errorf("%s: rollsServers of version %s is %q: it must be none, default or all", List, release.Version, release.RollsServers)
		}
	}
	return releases, nil
}

// Upgrade returns what an upgrade between two versions does: what the versions after from, up to and
// including to, do. Only RollsServers and TightensCRD are set.
func Upgrade(from, to semver.Version) (Release, error) {
	root, err := top()
	if err != nil {
		return Release{}, err
	}
	releases, err := read(root)
	return upgrade(releases, from, to), err
}

func upgrade(releases []Release, from, to semver.Version) Release {
	sum := Release{RollsServers: NoServers}
	for _, release := range releases {
		version, err := semver.Parse(release.Version)
		if err != nil || version.LTE(from) || version.GT(to) {
			continue
		}
		if release.RollsServers == AllServers || sum.RollsServers == NoServers {
			sum.RollsServers = release.RollsServers
		}
		sum.TightensCRD = sum.TightensCRD || release.TightensCRD
	}
	return sum
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

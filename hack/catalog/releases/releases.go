// Package releases reads the list of releases, and the files of each release from the history of this repository.
package releases

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"sigs.k8s.io/yaml"
)

// List lists the releases, oldest first. The path is relative to the root of the repository.
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
	Commit string `json:"commit,omitempty"`
	Date   string `json:"date,omitempty"`
	// Bundle is the digest of the bundle's image.
	Bundle string `json:"bundle,omitempty"`
	// Channels offer the release.
	Channels []string `json:"channels,omitempty"`
	// Deprecated is the message of a version that users should replace.
	Deprecated string `json:"deprecated,omitempty"`
	// RollsServers states which pods of Echoes the upgrade to this release restarts.
	RollsServers Servers `json:"rollsServers"`
	// TightensCRD states whether the CRD rejects new Echoes that an earlier version accepted.
	TightensCRD bool `json:"tightensCRD,omitempty"`

	root string
}

// Published returns the published releases of the repository that contains the working directory, oldest first.
func Published() ([]Release, error) {
	list, err := read()
	return slices.DeleteFunc(list, func(r Release) bool { return r.Commit == "" }), err
}

func read() (list []Release, err error) {
	top, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	root := strings.TrimSpace(string(top))
	text, err := os.ReadFile(filepath.Join(root, List)) // #nosec G304 -- a file of this repository
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", List, err)
	}
	for i := range list {
		list[i].root = root
		if _, err := semver.Parse(list[i].Version); err != nil {
			return nil, fmt.Errorf("%s: version %q must be X.Y.Z: %w", List, list[i].Version, err)
		}
	}
	return list, nil
}

// Semver returns the version. The functions of this package return only valid ones.
func (r Release) Semver() semver.Version { return semver.MustParse(r.Version) }

// Upgrade returns the entry of a version that follows a published release: what the upgrade does to running
// servers and to the CRD. Between versions that are built from the same tree, an upgrade does nothing to them.
func Upgrade(from, to string) (Release, error) {
	list, err := read()
	follows := slices.ContainsFunc(list, func(r Release) bool { return r.Version == from && r.Commit != "" })
	i := slices.IndexFunc(list, func(r Release) bool { return r.Version == to })
	if !follows || i < 0 {
		return Release{RollsServers: NoServers}, err
	}
	return list[i], nil
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

// Extract writes a folder of the release into an existing directory.
func (r Release) Extract(dir, folder string) error {
	command := exec.Command("sh", "-c", `git archive "$0" | tar -x -C "$1"`, r.Commit+":"+folder, dir) // #nosec G204 -- see git
	command.Dir, command.Stderr = r.root, os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("commit %s of release %s: %w: a shallow clone lacks it", r.Commit, r.Version, err)
	}
	return nil
}

func git(dir string, args ...string) ([]byte, error) {
	command := exec.Command("git", args...) // #nosec G204 -- arguments come from this repository
	command.Dir, command.Stderr = dir, os.Stderr
	return command.Output()
}

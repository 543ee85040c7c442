// Package releases reads catalog/releases.yaml, and from the history of this repository
// the files as they were released.
package releases

import (
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

// Release is one released version.
type Release struct {
	Version string `json:"version"`
	// Commit is the full id of the commit that the release was built from.
	Commit string `json:"commit"`
	Date   string `json:"date"`
	// RollsServers says that the upgrade to this release restarts the pods of the Echoes.
	RollsServers bool `json:"rollsServers"`

	root string
}

// Load returns the releases of the repository that the working directory is in, oldest
// first. It fails where the history of one of them is missing.
func Load() ([]Release, error) {
	root, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	return load(strings.TrimSpace(string(root)))
}

func load(root string) ([]Release, error) {
	text, err := os.ReadFile(filepath.Join(root, List)) // #nosec G304 -- a file of this repository
	if err != nil {
		return nil, err
	}
	var releases []Release
	if err := yaml.UnmarshalStrict(text, &releases); err != nil {
		return nil, fmt.Errorf("%s: %w", List, err)
	}
	if len(releases) == 0 {
		return nil, fmt.Errorf("%s lists no release", List)
	}
	for i := range releases {
		release := &releases[i]
		release.root = root
		if _, err := git(root, "cat-file", "-e", release.Commit+"^{commit}"); err != nil {
			return nil, fmt.Errorf("%s: commit %s of release %s is not in this clone: run `git fetch --unshallow`",
				List, release.Commit, release.Version)
		}
	}
	return releases, nil
}

// Rolls tells whether an upgrade restarts the servers: whether one of the releases after the
// first version, up to the second, does.
func Rolls(releases []Release, from, to semver.Version) bool {
	return slices.ContainsFunc(releases, func(release Release) bool {
		version, err := semver.Parse(release.Version)
		return err == nil && release.RollsServers && version.GT(from) && version.LTE(to)
	})
}

// File returns a file as it was released; path is relative to the root of the repository.
func (r Release) File(path string) ([]byte, error) {
	return git(r.root, "show", r.Commit+":"+path)
}

// Files lists the files below a directory as they were released.
func (r Release) Files(dir string) ([]string, error) {
	list, err := git(r.root, "ls-tree", "-r", "--name-only", r.Commit, dir+"/")
	return strings.Fields(string(list)), err
}

func git(dir string, args ...string) ([]byte, error) {
	command := exec.Command("git", args...) // #nosec G204 -- our own arguments
	command.Dir = dir
	output, err := command.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("git %s: %s", strings.Join(args, " "), strings.TrimSpace(string(exit.Stderr)))
	}
	return output, err
}

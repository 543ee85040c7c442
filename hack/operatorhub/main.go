// Command operatorhub writes the content of a pull request to each of two hubs, whose pipelines check it:
//
//	community-operators       the source of OperatorHub.io
//	community-operators-prod  the source of OpenShift's community catalog
//
// Usage: go -C hack run ./operatorhub <version of a release, or directory of a bundle> <output directory>.
// Run it with `make operatorhub RELEASE=<version>`.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: operatorhub <version of a release, or directory of a bundle> <output directory>")
		os.Exit(2)
	}
	// All paths are relative to the root of the repository.
	if err := errors.Join(os.Chdir(".."), run(os.Args[1], os.Args[2])); err != nil {
		fmt.Fprintln(os.Stderr, "operatorhub:", err)
		os.Exit(1)
	}
}

func run(bundle, output string) error {
	published, err := releases.Published()
	if err != nil {
		return err
	}
	return writePullRequests(bundle, output, published)
}

// writePullRequests writes the pull request of a published release, or of the bundle in a directory, to each hub.
func writePullRequests(bundle, output string, published []releases.Release) (err error) {
	if i := slices.IndexFunc(published, func(r releases.Release) bool { return r.Version == bundle }); i >= 0 {
		release := published[i]
		if !isForHubs(release) {
			return fmt.Errorf("version %s is in %v: only versions in a channel stable-v<major> are for the hubs", bundle, release.Channels)
		}
		// A pull request names only the releases before it, in case it is opened late.
		published = published[:i]
		if bundle, err = os.MkdirTemp("", "operatorhub-"); err != nil {
			return err
		}
		defer os.RemoveAll(bundle)
		if err := release.Extract(bundle, "bundle"); err != nil {
			return err
		}
	}
	for _, hub := range hubs {
		dir := filepath.Join(output, hub.name, "operators", "echo-operator")
		if err := errors.Join(os.RemoveAll(dir), hub.write(dir, bundle, published)); err != nil {
			return fmt.Errorf("%s: %w", hub.name, err)
		}
	}
	return nil
}

// Command catalog writes the file-based catalogs of this repository. Run it with
// `go -C hack run ./catalog <command>`:
//
//	render               write the catalog of the published releases
//	build <bundle image> write the catalog that contains only this tree's bundle to bin/package
//	test-catalogs        write the catalogs and bundles for the upgrade tests to bin/catalogs
//	releases             print version and commit of each release, oldest first
//
// The make targets catalog, catalog-build, test-catalogs and releases run these commands.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "catalog:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	// All paths are relative to the root of the repository.
	if err := os.Chdir(".."); err != nil {
		return err
	}
	if len(args) == 2 && args[0] == "build" {
		return build(ctx, args[1])
	}
	switch command := strings.Join(args, " "); command {
	case "render":
		return render(ctx)
	case "test-catalogs":
		return writeTestCatalogs(ctx)
	case "releases":
		list, err := releases.Load()
		if err != nil {
			return err
		}
		for _, release := range list {
			fmt.Println(release.Version, release.Commit)
		}
		return nil
	default:
		return fmt.Errorf("unknown command %q: see hack/catalog/main.go", command)
	}
}

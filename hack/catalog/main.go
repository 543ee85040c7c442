// Command catalog writes the file-based catalogs of this repository. Run it with
// `go -C hack run ./catalog <command>`:
//
//	render                 write the catalog of the published releases
//	build <bundle image>   write the catalog that contains only this tree's bundle to bin/package
//
// The make targets catalog and catalog-build run these commands.
package main

import (
	"context"
	"fmt"
	"os"
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
	switch {
	case len(args) == 2 && args[0] == "build":
		return build(ctx, args[1])
	case len(args) == 1 && args[0] == "render":
		return render(ctx)
	}
	return fmt.Errorf("unknown command %q: see hack/catalog/main.go", args)
}

// Command operatorhub writes the content of a pull request to each of two hubs, and checks it against the rules of their
// pipelines:
//
//	community-operators       the source of OperatorHub.io
//	community-operators-prod  the source of OpenShift's community catalog
//
// Usage: operatorhub [-root <repository>] -bundle <directory or tarball> <output directory>. The bundle is that of a
// release: all of its images have digests. Run it with `make operatorhub BUNDLE=<tarball>`, or RELEASE=<version>.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the root of the repository")
	flag.StringVar(&o.bundle, "bundle", "", "the directory bundle of a release, or a tarball that contains it")
	flag.StringVar(&o.release, "release", "", "the version of a release, whose bundle is read from its commit")
	flag.BoolVar(&o.unreleased, "unreleased", false, "accept a bundle whose images have no digests, for tests")
	flag.Parse()
	if flag.NArg() != 1 || (o.bundle == "") == (o.release == "") {
		fmt.Fprintln(os.Stderr, "operatorhub: give an output directory, and either -bundle or -release")
		flag.Usage()
		os.Exit(2)
	}
	o.output = flag.Arg(0)
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "operatorhub:", err)
		os.Exit(1)
	}
}

type options struct {
	root, bundle, release, output string
	unreleased                    bool
}

func run(o options) error {
	bundle, err := os.MkdirTemp("", "operatorhub-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(bundle)
	if err := copyBundle(o, bundle); err != nil {
		return err
	}
	if !o.unreleased {
		if err := checkDigests(bundle); err != nil {
			return err
		}
	}
	published, err := releases.Published()
	if err != nil {
		return err
	}
	for _, hub := range hubs {
		dir := filepath.Join(o.output, hub.name, "operators", "echo-operator")
		if err := errors.Join(os.RemoveAll(dir), hub.write(o.root, dir, bundle, published)); err != nil {
			return err
		}
		if problems, err := check(hub, bundle, o.root, published); err != nil {
			return err
		} else if problems > 0 {
			return fmt.Errorf("%s: %d problems", hub.name, problems)
		}
	}
	return nil
}

// check applies the rules to the state after the pull request is merged: the directory with the bundle and every
// other release. It prints the result of each rule, and returns the number of problems.
func check(hub hub, bundle, root string, published []releases.Release) (problems int, err error) {
	merged, err := os.MkdirTemp("", "operatorhub-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(merged)
	dir := filepath.Join(merged, "echo-operator")
	for i, release := range published {
		earlier := filepath.Join(merged, release.Version)
		if err := errors.Join(os.Mkdir(earlier, 0o755), release.Extract(earlier, "bundle"), hub.write(root, dir, earlier, published[:i])); err != nil {
			return 0, err
		}
	}
	if err := hub.write(root, dir, bundle, published); err != nil {
		return 0, err
	}
	operator, err := load(dir)
	if err != nil {
		return 0, err
	}
	for _, rule := range rules {
		found := rule.check(operator)
		if len(found) == 0 {
			fmt.Printf("ok    %s: %s\n", hub.name, rule.name)
		}
		for _, problem := range found {
			fmt.Printf("FAIL  %s: %s: %s\n", hub.name, rule.name, problem)
		}
		problems += len(found)
	}
	return problems, nil
}

// Command operatorhub writes the directory for a pull request to
// k8s-operatorhub/community-operators and checks it against the rules of that repository's
// pipeline: operatorhub [-all] <directory>.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	all := flag.Bool("all", false, "write every release instead of the version of this tree")
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	ok, err := run(*root, flag.Arg(0), *all)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

func run(root, output string, all bool) (bool, error) {
	dir := filepath.Join(output, "operators", "echo-operator")
	if err := resetDir(root, dir); err != nil {
		return false, err
	}
	var err error
	if all {
		err = writeReleases(dir)
	} else {
		err = writeTree(root, dir)
	}
	if err != nil {
		return false, err
	}
	return check(root)
}

// check applies the rules to a directory that contains every release and this tree's version, which
// is the state after the pull request is merged.
func check(root string) (bool, error) {
	merged, err := os.MkdirTemp("", "operatorhub-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(merged)
	dir := filepath.Join(merged, "echo-operator")
	if err := errors.Join(resetDir(root, dir), writeReleases(dir), writeTree(root, dir)); err != nil {
		return false, err
	}
	operator, err := load(dir)
	if err != nil {
		return false, err
	}
	passed := true
	for _, rule := range rules {
		problems := rule.check(operator)
		if len(problems) == 0 {
			fmt.Println("ok    operatorhub:", rule.name)
		}
		for _, problem := range problems {
			fmt.Printf("FAIL  operatorhub: %s: %s\n", rule.name, problem)
			passed = false
		}
	}
	return passed, nil
}

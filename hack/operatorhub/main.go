// Command operatorhub writes the directory that a pull request to
// k8s-operatorhub/community-operators carries, and checks it by the rules of the pipeline
// that will: operatorhub [-all] <directory>.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	all := flag.Bool("all", false, "write every release, and not the version of this tree")
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
	if err := start(root, dir); err != nil {
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

// check looks at this tree's version as merged, beside all that was released before.
func check(root string) (bool, error) {
	merged, err := os.MkdirTemp("", "operatorhub-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(merged)
	dir := filepath.Join(merged, "echo-operator")
	if err := errors.Join(start(root, dir), writeReleases(dir), writeTree(root, dir)); err != nil {
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

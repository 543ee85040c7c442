// Package mutants tests the campaign: it runs operators with a planted bug, each of which a suite
// has to catch. A mutant is a Go file in testdata that replaces functions of one package of the
// operator, by their name. It may call the function that it replaces by the name with the prefix
// "original": originalUpdate for update. The comments before its package clause are its header:
//
//	// Mutant: an operator that does this
//	// Guarantee: the number of the guarantee in docs/guarantees.md that it violates
//	// Suite: the suite that has to catch it
//	// Package: the directory of the package
package mutants

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed testdata/*.go
var sources embed.FS

// Mutant is an operator with a planted bug.
type Mutant struct {
	// Name completes the sentence "an operator that ...".
	Name string
	// Guarantee is the number of the guarantee that it violates.
	Guarantee int
	// Suite has to catch it.
	Suite string

	directory string // Of the package in the project.
	source    []byte
}

// All returns all mutants, ordered by guarantee.
func All() (all []Mutant, err error) {
	files, err := sources.ReadDir("testdata")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		source, err := sources.ReadFile("testdata/" + file.Name())
		if err != nil {
			return nil, err
		}
		fields := map[string]string{}
		for line := range strings.Lines(string(source)) {
			if name, value, found := strings.Cut(strings.TrimPrefix(line, "// "), ": "); found && strings.HasPrefix(line, "// ") {
				fields[name] = strings.TrimSpace(value)
			}
		}
		guarantee, err := strconv.Atoi(fields["Guarantee"])
		if err != nil {
			return nil, fmt.Errorf("%s: guarantee: %w", file.Name(), err)
		}
		all = append(all, Mutant{Name: fields["Mutant"], Guarantee: guarantee, Suite: fields["Suite"], directory: fields["Package"], source: source})
	}
	slices.SortStableFunc(all, func(a, b Mutant) int { return cmp.Compare(a.Guarantee, b.Guarantee) })
	return all, nil
}

// build compiles packages with the planted bug.
func (m Mutant) build(ctx context.Context, root, directory string, args ...string) error {
	overlay, err := m.overlay(root, directory)
	if err != nil {
		return fmt.Errorf("mutant that %s: %w", m.Name, err)
	}
	args = append([]string{"build", "-trimpath", "-buildvcs=false", "-overlay", overlay}, args...)
	build := exec.CommandContext(ctx, "go", args...) //nolint:gosec // Programs of the project.
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the mutant that %s: %w\n%s", m.Name, err, output)
	}
	return nil
}

// overlay writes the changed files of the package, and an overlay for the Go command that lists them.
// The project itself does not change.
func (m Mutant) overlay(root, directory string) (overlay string, err error) {
	replaced, err := m.replaced()
	if err != nil {
		return "", err
	}
	originals, err := filepath.Glob(filepath.Join(root, m.directory, "*.go"))
	if err != nil {
		return "", err
	}
	files := map[string]string{}
	write := func(original string, text []byte) error {
		path, err := filepath.Abs(original)
		files[path] = filepath.Join(directory, filepath.Base(original))
		if err != nil {
			return err
		}
		return os.WriteFile(files[path], text, 0o600)
	}
	for _, original := range originals {
		text, err := os.ReadFile(original) //nolint:gosec // A file of the project.
		if err != nil {
			return "", err
		}
		changed, found := rename(text, replaced)
		for _, name := range found {
			delete(replaced, name)
		}
		if len(found) > 0 {
			if err := write(original, changed); err != nil {
				return "", err
			}
		}
	}
	if len(replaced) > 0 {
		return "", fmt.Errorf("package %s lacks the functions %v", m.directory, replaced)
	}
	if err := write(filepath.Join(root, m.directory, "planted_bug.go"), m.source); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": files})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(directory, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// replaced returns the functions that the mutant declares.
func (m Mutant) replaced() (map[string]bool, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "", m.source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, declaration := range file.Decls {
		if function, is := declaration.(*ast.FuncDecl); is {
			names[nameOf(function)] = true
		}
	}
	return names, nil
}

// nameOf returns the name of a function, with that of its receiver's type.
func nameOf(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return function.Name.Name
	}
	return strings.TrimPrefix(types.ExprString(function.Recv.List[0].Type), "*") + "." + function.Name.Name
}

// rename adds the prefix "original" to those of the functions that a file declares, and returns them.
func rename(text []byte, functions map[string]bool) (changed []byte, found []string) {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, "", text, parser.SkipObjectResolution)
	if err != nil {
		return text, nil // The compiler reports it.
	}
	changed = text
	for _, declaration := range slices.Backward(file.Decls) {
		function, is := declaration.(*ast.FuncDecl)
		if !is || !functions[nameOf(function)] {
			continue
		}
		at := positions.Position(function.Name.Pos()).Offset
		changed = slices.Concat(changed[:at], []byte("original"+strings.ToUpper(function.Name.Name[:1])), changed[at+1:])
		found = append(found, nameOf(function))
	}
	return changed, found
}

// Package mutants tests the campaign: it runs operators with a planted bug, each of which a suite
// has to catch. A mutant is a patch of the operator's source code, with a header:
//
//	Mutant: an operator that does this
//	Guarantee: the number of the guarantee in docs/reliability.md that it violates
//	Suite: the suite that has to catch it in the short form
package mutants

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

//go:embed *.patch
var patches embed.FS

// Mutant is an operator with a planted bug.
type Mutant struct {
	// Name completes the sentence "an operator that ...".
	Name string
	// Guarantee is the number of the guarantee that it violates.
	Guarantee int
	// Suite has to catch it in the short form.
	Suite string

	file  string // Name of the patch file without its extension.
	patch []byte
}

// All returns all mutants, ordered by guarantee.
func All() (all []Mutant, err error) {
	files, err := patches.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		patch, err := patches.ReadFile(file.Name())
		if err != nil {
			return nil, err
		}
		m, err := parse(strings.TrimSuffix(file.Name(), ".patch"), patch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		all = append(all, m)
	}
	slices.SortStableFunc(all, func(a, b Mutant) int { return cmp.Compare(a.Guarantee, b.Guarantee) })
	return all, nil
}

const (
	header   = "--- a/"
	maxLines = 10 // Of the header of a patch.
)

// parse reads the header of a patch.
func parse(file string, patch []byte) (Mutant, error) {
	m := Mutant{file: file, patch: patch}
	fields := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(patch))
	for range maxLines {
		if !lines.Scan() || strings.HasPrefix(lines.Text(), header) {
			break
		}
		if name, value, found := strings.Cut(lines.Text(), ": "); found {
			fields[name] = value
		}
	}
	m.Name, m.Suite = fields["Mutant"], fields["Suite"]
	var err error
	if m.Guarantee, err = strconv.Atoi(fields["Guarantee"]); err != nil || m.Name == "" || m.Suite == "" {
		return m, fmt.Errorf("header: want Mutant, Guarantee and Suite, got %v", fields)
	}
	return m, lines.Err()
}

// files returns the files that the patch changes.
func (m Mutant) files() (files []string) {
	for line := range bytes.Lines(m.patch) {
		if name, found := strings.CutPrefix(string(line), header); found {
			files = append(files, strings.TrimSpace(name))
		}
	}
	return files
}

// apply applies the patch to copies of the files in a directory, and returns the copies by the path
// of the original. The work tree does not change.
func (m Mutant) apply(ctx context.Context, root, directory string) (map[string]string, error) {
	copies := map[string]string{}
	for _, file := range m.files() {
		original, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		text, err := os.ReadFile(original) //nolint:gosec // A file of the project.
		if err != nil {
			return nil, err
		}
		copies[original] = filepath.Join(directory, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(copies[original]), 0o700), os.WriteFile(copies[original], text, 0o600)); err != nil {
			return nil, err
		}
	}
	apply := exec.CommandContext(ctx, "git", "apply", "-")
	apply.Dir, apply.Stdin = directory, bytes.NewReader(m.patch)
	// Inside a repository, git would look for the files there.
	apply.Env = append(os.Environ(), "GIT_DIR="+os.DevNull)
	if output, err := apply.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("apply %s.patch: %w\n%s", m.file, err, output)
	}
	return copies, nil
}

// build compiles the mutant, and returns its program. It has the name of the operator's program,
// which becomes the field manager of its writes.
func (m Mutant) build(ctx context.Context, root, directory string) (string, error) {
	directory = filepath.Join(directory, m.file)
	copies, err := m.apply(ctx, root, directory)
	if err != nil {
		return "", err
	}
	program := filepath.Join(directory, "manager")
	return program, m.compile(ctx, root, directory, copies, "-o", program, "./cmd")
}

// compile compiles packages with the changed copies of files.
func (m Mutant) compile(ctx context.Context, root, directory string, copies map[string]string, args ...string) error {
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": copies})
	if err != nil {
		return err
	}
	overlayFile := filepath.Join(directory, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return err
	}
	args = append([]string{"build", "-trimpath", "-buildvcs=false", "-overlay", overlayFile}, args...)
	build := exec.CommandContext(ctx, "go", args...) //nolint:gosec // Programs of the project.
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build mutant %q: %w\n%s", m.Name, err, output)
	}
	return nil
}

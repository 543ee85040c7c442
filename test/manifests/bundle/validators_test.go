package bundle

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// The validator multiarch pulls images, so hack/multiarch-check.sh runs it where they are built.
func TestOperatorSDKValidatorsAcceptBundle(t *testing.T) {
	validate(t, "bundle")
	newest := strings.TrimPrefix(semver.MajorMinor(repo.Requirements(t, "tools/kubernetes.mod")["k8s.io/kubernetes"]), "v")
	for _, validator := range optionalValidators(t) {
		for _, kubernetes := range []string{repo.OldestKubernetes(t), newest} {
			t.Run(validator+" on Kubernetes "+kubernetes, func(t *testing.T) {
				validate(t, "bundle", "--select-optional=name="+validator,
					"--optional-values=k8s-version="+kubernetes, "--optional-values=index-path=bundle.Dockerfile")
			})
		}
	}
}

func TestOperatorSDKValidatorsAcceptOperatorHubDirectory(t *testing.T) {
	dir := t.TempDir()
	if output, err := command(t, "go", "-C", "hack", "run", "./operatorhub", "bundle", dir).CombinedOutput(); err != nil {
		t.Fatalf("operatorhub: %v\n%s", err, output)
	}
	for _, version := range repo.Glob(t, filepath.Join(dir, "*/operators/echo-operator/[0-9]*")) {
		validate(t, version, "--select-optional=name=operatorhub")
		validate(t, version, "--select-optional=suite=operatorframework")
	}
}

// validate runs operator-sdk bundle validate. Warnings count as errors, except the warning that the
// validator operatorhub is deprecated, which it prints for every bundle.
func validate(t *testing.T, args ...string) {
	t.Helper()
	output, err := command(t, "operator-sdk", append([]string{"bundle", "validate", "-o", "json-alpha1"}, args...)...).Output()
	var result struct {
		Passed  bool
		Outputs []struct{ Type, Message string }
	}
	if failure := json.Unmarshal(output, &result); failure != nil {
		t.Fatalf("operator-sdk: %v, %v. Run `make package-check`, which builds operator-sdk", err, failure)
	}
	if !result.Passed || err != nil {
		t.Errorf("operator-sdk bundle validate %s: not passed: %v", strings.Join(args, " "), err)
	}
	for _, problem := range result.Outputs {
		if !strings.Contains(problem.Message, `The "operatorhub" validator is deprecated`) {
			t.Errorf("operator-sdk bundle validate %s: %s: %s", strings.Join(args, " "), problem.Type, problem.Message)
		}
	}
}

// optionalValidators returns the names of all optional validators that need no image.
func optionalValidators(t *testing.T) []string {
	t.Helper()
	list, err := command(t, "operator-sdk", "bundle", "validate", "--list-optional").Output()
	if err != nil {
		t.Fatalf("operator-sdk: %v. Run `make package-check`, which builds operator-sdk", err)
	}
	var names []string
	// The lines are a header, and for each validator one that starts with its name and some that are
	// indented. The labels, such as name=community, have a random order.
	for line := range strings.Lines(string(list)) {
		name, _, _ := strings.Cut(line, " ")
		if name != "" && name != "NAME" && name != "multiarch" {
			names = append(names, name)
		}
	}
	if !slices.Contains(names, "good-practices") {
		t.Fatalf("operator-sdk lists the validators %v, want some with good-practices", names)
	}
	return names
}

// command returns a command that runs in the root of the repository.
func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = repo.Root
	return c
}

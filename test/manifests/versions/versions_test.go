// Package versions tests that files name the same versions of the operator and of Kubernetes.
package versions

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// make test-oldest runs the version that the bundle declares as the oldest.
func TestOldestKubernetesIsTheMinimumOfTheBundle(t *testing.T) {
	tested := repo.Requirements(t, "tools/kubernetes-oldest.mod")["k8s.io/kubernetes"]
	if want := repo.OldestKubernetes(t); !strings.HasPrefix(tested, "v"+want+".") {
		t.Errorf("tools/kubernetes-oldest.mod has Kubernetes %s, but the bundle has minKubeVersion %s", tested, want)
	}
}

// Unreleased images have the version as tag, released images a digest. The tag of the catalog moves.
func TestVersionOfOperatorMatchesMakefile(t *testing.T) {
	version := repo.MakeVariable(t, "VERSION")
	major, _, _ := strings.Cut(version, ".")
	image := regexp.MustCompile(`ghcr\.io/kkloud-io/echo-operator(-[a-z-]+)?([:@]\S+)`)
	want := regexp.MustCompile(`^(:v` + regexp.QuoteMeta(version) + `|@sha256:[0-9a-f]{64})$`)
	for _, file := range repo.Glob(t, repo.Root+"/config/*/*.yaml") {
		for _, match := range image.FindAllSubmatch(repo.Read(t, file), -1) {
			if catalog := string(match[1]) == "-catalog" && string(match[2]) == ":v"+major; !catalog && !want.Match(match[2]) {
				t.Errorf("%s: %s has neither the tag v%s, as in the Makefile, nor a digest", file, match[0], version)
			}
		}
	}
	release, _, _ := strings.Cut(version, "-rc.")
	for file, text := range map[string]string{
		"config/manifests/bases/echo-operator.clusterserviceversion.yaml": " <" + version + "'",
		"CHANGELOG.md": "\n## " + release + " (",
	} {
		if !strings.Contains(string(repo.Read(t, repo.Root+"/"+file)), text) {
			t.Errorf("%s does not contain %q: the version in the Makefile is %s", file, text, version)
		}
	}
}

package versions

import (
	"maps"
	"slices"
	"testing"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// moduleFiles list modules that are compiled once if they have one version everywhere.
var moduleFiles = []string{"go.mod", "test/go.mod", "hack/go.mod", "tools/kubernetes.mod", "tools/olm.mod"}

// unaligned are modules that cannot have one version, with the reason.
var unaligned = map[string]string{}

func TestModuleFilesShareTheirVersions(t *testing.T) {
	versions := map[string]map[string]string{} // By module and by file.
	for _, file := range moduleFiles {
		for module, version := range repo.Requirements(t, file) {
			if versions[module] == nil {
				versions[module] = map[string]string{}
			}
			versions[module][file] = version
		}
	}
	for _, module := range slices.Sorted(maps.Keys(versions)) {
		differ := len(slices.Compact(slices.Sorted(maps.Values(versions[module])))) > 1
		if differ && unaligned[module] == "" {
			t.Errorf("%s has several versions: %v", module, versions[module])
		}
		if !differ && unaligned[module] != "" {
			t.Errorf("%s has one version: remove it from unaligned", module)
		}
	}
}

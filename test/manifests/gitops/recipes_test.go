package gitops

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// TestRecipesKeepTheCRD builds what the recipes deploy from this repository: with the CRD, all Echoes would be deleted.
func TestRecipesKeepTheCRD(t *testing.T) {
	for name, recipe := range map[string]struct {
		file          string
		path, patches []string
		annotation    string
		value         string
	}{
		"Argo CD": {
			"argocd/applications.yaml", []string{"spec", "source", "path"}, []string{"spec", "source", "kustomize", "patches"},
			"argocd.argoproj.io/sync-options", "Prune=false,Delete=false",
		},
		"Flux": {
			"flux/kustomizations.yaml", []string{"spec", "path"}, []string{"spec", "patches"},
			"kustomize.toolkit.fluxcd.io/prune", "disabled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for _, object := range repo.Objects(t, repo.Read(t, repo.Root+"/config/"+recipe.file)) {
				patches, hasPatches, _ := unstructured.NestedFieldNoCopy(object, recipe.patches...)
				if !hasPatches {
					continue
				}
				path, _, _ := unstructured.NestedString(object, recipe.path...)
				for _, built := range build(t, filepath.Join(repo.Root, path), patches) {
					manifest := unstructured.Unstructured{Object: built}
					if manifest.GetKind() != "CustomResourceDefinition" {
						continue
					}
					found = true
					if got := manifest.GetAnnotations()[recipe.annotation]; got != recipe.value {
						t.Errorf("annotation %s of the CRD = %q, want %q", recipe.annotation, got, recipe.value)
					}
				}
			}
			if !found {
				t.Error("no CRD is deployed with patches")
			}
		})
	}
}

// build returns the objects of a kustomization with patches.
func build(t *testing.T, kustomization string, patches any) []repo.Object {
	t.Helper()
	directory := t.TempDir()
	target, err := filepath.Abs(kustomization)
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(directory, target)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := yaml.Marshal(repo.Object{"resources": []string{relative}, "patches": patches})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "kustomization.yaml"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.Command("kustomize", "build", directory).Output()
	if err != nil {
		t.Fatalf("kustomize: %v. Run `make package-check`, which builds kustomize", err)
	}
	return repo.Objects(t, output)
}

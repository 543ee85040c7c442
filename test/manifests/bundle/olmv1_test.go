package bundle

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// contents is a bundle as OLM v1 reads it.
type contents struct {
	csv     repo.Object
	others  []repo.Object
	pkg     any
	folders []string
}

// olmV1Kinds are the kinds of objects that OLM v1 installs, in v1.2.0 and in v1.11.0.
var olmV1Kinds = []string{
	"ClusterRole", "ClusterRoleBinding", "ConfigMap", "ConsoleCLIDownload", "ConsoleLink", "ConsoleQuickStart",
	"ConsoleYAMLSample", "CustomResourceDefinition", "PodDisruptionBudget", "PriorityClass", "PrometheusRule", "Role",
	"RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor", "VerticalPodAutoscaler",
}

// olmV1Rules are the bundle rules of OLM v1.11.0, which the tests can neither run nor import: its
// package validators and the conditions in its documentation. The rules for webhooks and API
// services are stricter here: the bundle must not contain any.
var olmV1Rules = map[string]func(*testing.T, contents) bool{
	"package name is set":          func(_ *testing.T, c contents) bool { return c.pkg != nil && c.pkg != "" },
	"manifests have no subfolders": func(_ *testing.T, c contents) bool { return len(c.folders) == 0 },
	"Deployment names are unique":  func(t *testing.T, c contents) bool { return unique(names(t, c.deployments(t))) },
	"Deployment names are valid": func(t *testing.T, c contents) bool {
		return !slices.ContainsFunc(names(t, c.deployments(t)), func(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 })
	},
	"CRD names are unique": func(t *testing.T, c contents) bool { return unique(c.crdNames(t)) },
	"owned CRDs are in the bundle": func(t *testing.T, c contents) bool {
		owned := repo.ObjectsAt(t, c.csv, "spec", "customresourcedefinitions", "owned")
		return !slices.ContainsFunc(names(t, owned), func(name string) bool { return !slices.Contains(c.crdNames(t), name) })
	},
	"kinds are supported": func(t *testing.T, c contents) bool {
		return !slices.ContainsFunc(c.others, func(object repo.Object) bool {
			return !slices.Contains(olmV1Kinds, repo.At(t, object, "kind").(string))
		})
	},
	"webhooks and API services are absent": func(_ *testing.T, c contents) bool {
		spec := c.csv["spec"].(repo.Object)
		services, _ := spec["apiservicedefinitions"].(repo.Object)
		return spec["webhookdefinitions"] == nil && len(services) == 0
	},
	"dependencies are absent": func(t *testing.T, c contents) bool {
		owned := repo.At(t, c.csv, "spec", "customresourcedefinitions").(repo.Object)
		annotations := repo.At(t, c.csv, "metadata", "annotations").(repo.Object)
		return owned["required"] == nil && annotations["olm.properties"] == nil
	},
	"install mode AllNamespaces is supported": func(t *testing.T, c contents) bool {
		return slices.ContainsFunc(repo.ObjectsAt(t, c.csv, "spec", "installModes"), func(mode repo.Object) bool {
			return mode["type"] == "AllNamespaces" && mode["supported"] == true
		})
	},
}

func TestBundleMeetsOLMv1Rules(t *testing.T) {
	for rule, holds := range olmV1Rules {
		if !holds(t, readContents(t)) {
			t.Errorf("bundle violates the OLM v1 rule: %s", rule)
		}
	}
	// A bundle declares its dependencies in one of these files.
	for _, name := range []string{"dependencies.yaml", "properties.yaml"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(metadataFile), name)); err == nil {
			t.Errorf("bundle/metadata/%s exists, want a bundle without dependencies", name)
		}
	}
}

func TestOLMv1RuleReportsOnlyItsOwnViolation(t *testing.T) {
	violations := map[string]func(*contents){
		"package name is set":          func(c *contents) { c.pkg = "" },
		"manifests have no subfolders": func(c *contents) { c.folders = []string{"crds"} },
		"Deployment names are unique": func(c *contents) {
			install := repo.At(t, c.csv, "spec", "install", "spec").(repo.Object)
			install["deployments"] = append(install["deployments"].([]any), install["deployments"].([]any)...)
		},
		"Deployment names are valid": func(c *contents) { c.deployments(t)[0]["name"] = "Not_Valid" },
		"CRD names are unique":       func(c *contents) { c.others = append(c.others, c.crds()[0]) },
		"owned CRDs are in the bundle": func(c *contents) {
			repo.At(t, c.crds()[0], "metadata").(repo.Object)["name"] = "others.kkloud.io"
		},
		"kinds are supported":                  func(c *contents) { c.others = append(c.others, repo.Object{"kind": "NetworkPolicy"}) },
		"webhooks and API services are absent": func(c *contents) { c.csv["spec"].(repo.Object)["webhookdefinitions"] = []any{} },
		"dependencies are absent": func(c *contents) {
			repo.At(t, c.csv, "spec", "customresourcedefinitions").(repo.Object)["required"] = []any{}
		},
		"install mode AllNamespaces is supported": func(c *contents) { c.csv["spec"].(repo.Object)["installModes"] = []any{} },
	}
	repo.Same(t, "rules that a case violates", slices.Collect(maps.Keys(violations)), slices.Collect(maps.Keys(olmV1Rules)))
	for violated, violate := range violations {
		for rule, holds := range olmV1Rules {
			c := readContents(t)
			violate(&c)
			if got, want := holds(t, c), rule != violated; got != want {
				t.Errorf("bundle that violates %q: rule %q holds: %t, want %t", violated, rule, got, want)
			}
		}
	}
}

// earlierPermissions are those that only releases up to 0.3.0 need. The same account installs them.
var earlierPermissions = []string{
	"patch events.events.k8s.io []",
	"update services. []",
	"update deployments.apps []",
	"update poddisruptionbudgets.policy []",
}

// OLM v1 installs with the permissions of a service account. RBAC prevents the account from granting
// permissions that it does not have.
func TestInstallerHasExactlyThePermissionsThatItGrants(t *testing.T) {
	c := readContents(t)
	granted := map[string]bool{}
	install := repo.At(t, c.csv, "spec", "install", "spec").(repo.Object)
	for _, field := range []string{"permissions", "clusterPermissions"} {
		for _, role := range repo.ObjectsAt(t, install, field) {
			addPermissions(t, granted, role)
		}
	}
	for _, object := range c.others {
		if object["kind"] == "ClusterRole" {
			addPermissions(t, granted, object)
		}
	}
	held := map[string]bool{}
	for _, object := range repo.Load(t, repo.Root+"/config/olm-v1/installer.yaml") {
		if object["kind"] == "ClusterRole" && repo.At(t, object, "metadata", "name") == "echo-operator-grants" {
			addPermissions(t, held, object)
		}
	}
	for permission := range granted {
		if !held[permission] {
			t.Errorf("ClusterRole echo-operator-grants lacks a permission that the bundle grants: %s", permission)
		}
	}
	for permission := range held {
		if !granted[permission] && !slices.Contains(earlierPermissions, permission) {
			t.Errorf("ClusterRole echo-operator-grants has a permission that the bundle does not grant: %s; run make bundle if config/rbac grants it", permission)
		}
	}
}

// addPermissions adds the permissions of a role, one for each verb and resource.
func addPermissions(t *testing.T, permissions map[string]bool, role repo.Object) {
	t.Helper()
	var typed rbacv1.ClusterRole
	convert(t, role, &typed)
	for _, rule := range typed.Rules {
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				permissions[verb+" "+url] = true
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					permissions[fmt.Sprint(verb, " ", resource, ".", group, " ", rule.ResourceNames)] = true
				}
			}
		}
	}
}

func readContents(t *testing.T) contents {
	t.Helper()
	c := contents{pkg: repo.At(t, repo.Load(t, metadataFile)[0], "annotations").(repo.Object)["operators.operatorframework.io.bundle.package.v1"]}
	entries, err := os.ReadDir(filepath.Dir(repo.CSVFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			c.folders = append(c.folders, entry.Name())
			continue
		}
		for _, object := range repo.Load(t, filepath.Join(filepath.Dir(repo.CSVFile), entry.Name())) {
			if object["kind"] == "ClusterServiceVersion" {
				c.csv = object
			} else {
				c.others = append(c.others, object)
			}
		}
	}
	return c
}

func (c contents) deployments(t *testing.T) []repo.Object {
	t.Helper()
	return repo.ObjectsAt(t, c.csv, "spec", "install", "spec", "deployments")
}

func (c contents) crds() []repo.Object {
	var crds []repo.Object
	for _, object := range c.others {
		if object["kind"] == "CustomResourceDefinition" {
			crds = append(crds, object)
		}
	}
	return crds
}

func (c contents) crdNames(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, crd := range c.crds() {
		found = append(found, repo.At(t, crd, "metadata", "name").(string))
	}
	return found
}

func names(t *testing.T, objects []repo.Object) []string {
	t.Helper()
	var found []string
	for _, object := range objects {
		found = append(found, repo.At(t, object, "name").(string))
	}
	return found
}

func unique(names []string) bool { return len(names) == len(repo.Distinct(names)) }

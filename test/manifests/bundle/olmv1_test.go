package bundle

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// parts is a bundle as OLM v1 reads it.
type parts struct {
	csv     map[string]any
	others  []map[string]any
	pkg     any
	folders []string
}

// olmV1Kinds are the kinds of objects that OLM v1 installs, in v1.2.0 as in v1.11.0.
var olmV1Kinds = []string{
	"ClusterRole", "ClusterRoleBinding", "ConfigMap", "ConsoleCLIDownload", "ConsoleLink", "ConsoleQuickStart",
	"ConsoleYAMLSample", "CustomResourceDefinition", "PodDisruptionBudget", "PriorityClass", "PrometheusRule", "Role",
	"RoleBinding", "Secret", "Service", "ServiceAccount", "ServiceMonitor", "VerticalPodAutoscaler",
}

// olmV1Rules are the rules for bundles in OLM v1.11.0, which cannot be run or imported here:
// its package validators and the conditions that its documentation sets. Those for webhooks
// and API services are stricter here: there are none.
var olmV1Rules = map[string]func(*testing.T, parts) bool{
	"the package has a name":      func(_ *testing.T, p parts) bool { return p.pkg != nil && p.pkg != "" },
	"manifests are in one folder": func(_ *testing.T, p parts) bool { return len(p.folders) == 0 },
	"Deployments have different names": func(t *testing.T, p parts) bool {
		return unique(names(t, p.deployments(t)))
	},
	"Deployments have valid names": func(t *testing.T, p parts) bool {
		return !slices.ContainsFunc(names(t, p.deployments(t)), func(name string) bool { return len(validation.IsDNS1123Subdomain(name)) > 0 })
	},
	"definitions have different names": func(t *testing.T, p parts) bool { return unique(p.definitions(t)) },
	"owned definitions are in the bundle": func(t *testing.T, p parts) bool {
		owned := list(t, at(t, p.csv, "spec", "customresourcedefinitions", "owned").([]any)...)
		return !slices.ContainsFunc(names(t, owned), func(name string) bool { return !slices.Contains(p.definitions(t), name) })
	},
	"all kinds are supported": func(t *testing.T, p parts) bool {
		return !slices.ContainsFunc(p.others, func(object map[string]any) bool {
			return !slices.Contains(olmV1Kinds, at(t, object, "kind").(string))
		})
	},
	"there are no webhooks and API services": func(_ *testing.T, p parts) bool {
		spec := p.csv["spec"].(map[string]any)
		services, _ := spec["apiservicedefinitions"].(map[string]any)
		return spec["webhookdefinitions"] == nil && len(services) == 0
	},
	"there are no dependencies": func(t *testing.T, p parts) bool {
		owned := at(t, p.csv, "spec", "customresourcedefinitions").(map[string]any)
		annotations := at(t, p.csv, "metadata", "annotations").(map[string]any)
		return owned["required"] == nil && annotations["olm.properties"] == nil
	},
	"all namespaces can be watched": func(t *testing.T, p parts) bool {
		return slices.ContainsFunc(list(t, at(t, p.csv, "spec", "installModes").([]any)...), func(mode map[string]any) bool {
			return mode["type"] == "AllNamespaces" && mode["supported"] == true
		})
	},
}

func TestOLMV1AcceptsTheBundle(t *testing.T) {
	for rule, holds := range olmV1Rules {
		if !holds(t, readParts(t)) {
			t.Errorf("it does not hold that %s", rule)
		}
	}
	// A bundle that depends on others says so in one of these.
	for _, name := range []string{"dependencies.yaml", "properties.yaml"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(metadataFile), name)); err == nil {
			t.Errorf("there is a bundle/metadata/%s", name)
		}
	}
}

// Each rule refuses what breaks it, and the others accept that.
func TestOLMV1Rules(t *testing.T) {
	breaks := map[string]func(*parts){
		"the package has a name":      func(p *parts) { p.pkg = "" },
		"manifests are in one folder": func(p *parts) { p.folders = []string{"crds"} },
		"Deployments have different names": func(p *parts) {
			install := at(t, p.csv, "spec", "install", "spec").(map[string]any)
			install["deployments"] = append(install["deployments"].([]any), install["deployments"].([]any)...)
		},
		"Deployments have valid names":     func(p *parts) { p.deployments(t)[0]["name"] = "Not_Valid" },
		"definitions have different names": func(p *parts) { p.others = append(p.others, p.definition(t)) },
		"owned definitions are in the bundle": func(p *parts) {
			at(t, p.definition(t), "metadata").(map[string]any)["name"] = "others.kkloud.io"
		},
		"all kinds are supported":                func(p *parts) { p.others = append(p.others, map[string]any{"kind": "NetworkPolicy"}) },
		"there are no webhooks and API services": func(p *parts) { p.csv["spec"].(map[string]any)["webhookdefinitions"] = []any{} },
		"there are no dependencies": func(p *parts) {
			at(t, p.csv, "spec", "customresourcedefinitions").(map[string]any)["required"] = []any{}
		},
		"all namespaces can be watched": func(p *parts) { p.csv["spec"].(map[string]any)["installModes"] = []any{} },
	}
	same(t, "rules that are broken", slices.Collect(maps.Keys(breaks)), slices.Collect(maps.Keys(olmV1Rules)))
	for broken, apply := range breaks {
		for rule, holds := range olmV1Rules {
			p := readParts(t)
			apply(&p)
			if got, want := holds(t, p), rule != broken; got != want {
				t.Errorf("with the rule broken that %s: that %s holds: %t, want %t", broken, rule, got, want)
			}
		}
	}
}

// earlierRights are those that only earlier releases ask for, which the account installs, too.
var earlierRights = []string{"patch events.events.k8s.io []"} // Up to 0.3.0.

// OLM v1 installs with the rights of an account, which cannot grant what it has not. It
// should have nothing else.
func TestTheInstallerHasWhatItGrants(t *testing.T) {
	p := readParts(t)
	granted := map[string]bool{}
	install := at(t, p.csv, "spec", "install", "spec").(map[string]any)
	for _, kind := range []string{"permissions", "clusterPermissions"} {
		for _, permission := range list(t, install[kind].([]any)...) {
			grant(t, granted, permission)
		}
	}
	for _, object := range p.others {
		if object["kind"] == "ClusterRole" {
			grant(t, granted, object)
		}
	}
	held := map[string]bool{}
	for _, object := range load(t, root+"/config/olm-v1/installer.yaml") {
		if object["kind"] == "ClusterRole" && at(t, object, "metadata", "name") == "echo-operator-grants" {
			grant(t, held, object)
		}
	}
	for right := range granted {
		if !held[right] {
			t.Errorf("the installer lacks: %s", right)
		}
	}
	for right := range held {
		if !granted[right] && !slices.Contains(earlierRights, right) {
			t.Errorf("the installer need not: %s", right)
		}
	}
}

// grant adds the rights of a role's rules, one by one.
func grant(t *testing.T, rights map[string]bool, role map[string]any) {
	t.Helper()
	var typed struct{ Rules []rbacv1.PolicyRule }
	text, err := json.Marshal(role)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &typed); err != nil {
		t.Fatal(err)
	}
	for _, rule := range typed.Rules {
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				rights[verb+" "+url] = true
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					rights[fmt.Sprint(verb, " ", resource, ".", group, " ", rule.ResourceNames)] = true
				}
			}
		}
	}
}

func readParts(t *testing.T) parts {
	t.Helper()
	p := parts{pkg: load(t, metadataFile)[0]["annotations"].(map[string]any)["operators.operatorframework.io.bundle.package.v1"]}
	entries, err := os.ReadDir(filepath.Dir(csvFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() {
			p.folders = append(p.folders, entry.Name())
			continue
		}
		for _, object := range load(t, filepath.Join(filepath.Dir(csvFile), entry.Name())) {
			if object["kind"] == "ClusterServiceVersion" {
				p.csv = object
			} else {
				p.others = append(p.others, object)
			}
		}
	}
	return p
}

func (p parts) deployments(t *testing.T) []map[string]any {
	t.Helper()
	return list(t, at(t, p.csv, "spec", "install", "spec", "deployments").([]any)...)
}

// definition returns the first definition.
func (p parts) definition(t *testing.T) map[string]any {
	t.Helper()
	for _, object := range p.others {
		if object["kind"] == "CustomResourceDefinition" {
			return object
		}
	}
	t.Fatal("the bundle has no definition")
	return nil
}

func (p parts) definitions(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, object := range p.others {
		if object["kind"] == "CustomResourceDefinition" {
			found = append(found, at(t, object, "metadata", "name").(string))
		}
	}
	return found
}

func names(t *testing.T, objects []map[string]any) []string {
	t.Helper()
	var found []string
	for _, object := range objects {
		found = append(found, at(t, object, "name").(string))
	}
	return found
}

func unique(names []string) bool {
	return len(names) == len(slices.Compact(slices.Sorted(slices.Values(names))))
}

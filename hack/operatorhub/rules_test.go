package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

// Each case violates one rule in a copy of this repository's bundle.
func TestRuleReportsViolation(t *testing.T) {
	csv := func(edit func(csv map[string]any)) func(*testing.T, string) {
		return func(t *testing.T, dir string) { editYAML(t, filepath.Join(dir, "0.3.0", csvFile), edit) }
	}
	set := func(value any, path ...string) func(*testing.T, string) {
		return csv(func(csv map[string]any) {
			if err := unstructured.SetNestedField(csv, value, path...); err != nil {
				panic(err)
			}
		})
	}
	annotations := func(name, value string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			editYAML(t, filepath.Join(dir, "0.3.0/metadata/annotations.yaml"), func(metadata map[string]any) {
				metadata["annotations"].(map[string]any)[name] = value
			})
		}
	}
	ci := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { put(t, filepath.Join(dir, "ci.yaml"), text) }
	}
	// replaces sets spec.replaces of each version in the graph.
	replaces := func(graph map[string]string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			ci("updateGraph: replaces-mode")(t, dir)
			for version, replaced := range graph {
				editYAML(t, filepath.Join(dir, version, csvFile), func(csv map[string]any) {
					csv["spec"].(map[string]any)["replaces"] = "echo-operator.v" + replaced
				})
			}
		}
	}
	const packageName = "operators.operatorframework.io.bundle.package.v1"

	const release, template = "0.3.0/release-config.yaml", "catalog-templates/basic.yaml"
	file := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { put(t, filepath.Join(dir, name), text) }
	}

	type violation struct {
		rule, want string
		violate    func(t *testing.T, dir string)
	}
	cases := []violation{
		{"layout", "0.3.0: contains", func(t *testing.T, dir string) { put(t, filepath.Join(dir, "0.3.0/README.md"), "") }},
		{"layout", "config.yaml is missing", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "0.3.0/tests/scorecard/config.yaml")) }},
		{"check_operator_name", `"another"`, annotations(packageName, "another")},
		{"check_operator_name_unique", "[echo-operator another]", set("another.v0.3.0", "metadata", "name")},
		{"check_operator_version_directory_name", "0.3.1", set("0.3.1", "spec", "version")},
		{"check_operator_version_directory_name", "echo-operator.v0.3.1", set("echo-operator.v0.3.1", "metadata", "name")},
		{"check_required_fields", "spec.displayName", set("EO", "spec", "displayName")},
		{"check_required_fields", "spec.description", set("Echoes.", "spec", "description")},
		{"check_required_fields", "spec.icon ", set([]any{}, "spec", "icon")},
		{"check_required_fields", "spec.icon.base64data", set([]any{map[string]any{"base64data": "%", "mediatype": "image/png"}}, "spec", "icon")},
		{"check_required_fields", "spec.icon.mediatype", set([]any{map[string]any{"base64data": "AAAA", "mediatype": "image/webp"}}, "spec", "icon")},
		{"check_required_fields", "spec.version", set("0.0.0", "spec", "version")},
		{"check_required_fields", "spec.maintainers", set([]any{}, "spec", "maintainers")},
		{"check_required_fields", "spec.maintainers", set([]any{map[string]any{"name": "x"}}, "spec", "maintainers")},
		{"check_required_fields", "spec.provider.name", set("x", "spec", "provider", "name")},
		{"check_required_fields", "spec.links", set([]any{}, "spec", "links")},
		{"check_required_fields", "spec.links", set([]any{map[string]any{"name": "x"}}, "spec", "links")},
		{"check_required_fields", "spec.keywords", set([]any{}, "spec", "keywords")},
		{"check_required_fields", "createdAt", set("today", "metadata", "annotations", "createdAt")},
		{"check_required_fields", "capabilities", set("All", "metadata", "annotations", "capabilities")},
		{"check_required_fields", "categories", set("Toys", "metadata", "annotations", "categories")},
		{"check_required_fields", "containerImage", set("echo-operator", "metadata", "annotations", "containerImage")},
		{"check_required_fields", "repository", set("echo-operator", "metadata", "annotations", "repository")},
		{"check_required_fields", "support", set("", "metadata", "annotations", "support")},
		{"check_required_fields", "annotations.description", set("Echoes.", "metadata", "annotations", "description")},
		{"check_network_policy_presence", "deny-all", func(t *testing.T, dir string) {
			put(t, filepath.Join(dir, "0.3.0/manifests/policy.yaml"),
				"{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all}}")
		}},
		{"check_api_version_constraints", "spec.minKubeVersion", set("", "spec", "minKubeVersion")},
		{"check_api_version_constraints", "must be v4.<minor>", annotations(openShiftVersions, "")},
		{"check_api_version_constraints", "at least v4.17", annotations(openShiftVersions, "v4.9")},
		{"check_ci_upgrade_graph", `updateGraph is "random"`, ci("updateGraph: random")},
		{"check_ci_upgrade_graph", `updateGraph is ""`, ci("{}")},
		{"check_validate_schema_ci_config", "reviewers", ci("{updateGraph: semver-mode, reviewers: []}")},
		{"check_validate_schema_ci_config", `unknown field "reviewer"`, ci("{updateGraph: semver-mode, reviewer: [a]}")},
		{"channels", "is in the channels [candidate-v0 fast-v0]", annotations(channelsAnnotation, "candidate-v0,fast-v0")},
		{"channels", "spec.replaces", set("echo-operator.v0.2.0", "spec", "replaces")},
		{"check_dangling_bundles", "echo-operator.v0.2.0 has no upgrade", replaces(map[string]string{"0.2.0": "0.1.0", "0.3.0": "0.1.0"})},
		{"check_upgrade_graph_loop", "echo-operator.v0.1.0", replaces(map[string]string{"0.1.0": "0.3.0", "0.2.0": "0.1.0", "0.3.0": "0.2.0"})},
		{"check_replaces_availability", "echo-operator.v0.2.9", replaces(map[string]string{"0.3.0": "0.2.9"})},
	}
	catalogCases := []violation{
		{"check_validate_schema_ci_config", "fbc.catalog_mapping[0]", ci("{fbc: {enabled: true, catalog_mapping: [{template_name: basic.yaml}]}, reviewers: [a]}")},
		{"check_using_fbc", "fbc.enabled", ci("{fbc: {enabled: false}, reviewers: [a]}")},
		{"check_catalog_usage", "names catalog-templates/other.yaml", ci("{fbc: {enabled: true, catalog_mapping: [{template_name: other.yaml}]}}")},
		{"check_catalog_usage", "basic.yaml is not in fbc.catalog_mapping", ci("{fbc: {enabled: true, catalog_mapping: []}}")},
		{"check_bundle_release_config", "needs fbc.enabled", ci("updateGraph: semver-mode")},
		{"check_bundle_release_config", `template "other.yaml"`, file(release, "catalog_templates: [{template_name: other.yaml, channels: [fast-v0]}]")},
		{"check_validate_schema_bundle_release_config", `unknown field "channel"`, file(release, "catalog_templates: [{template_name: basic.yaml, channel: fast-v0}]")},
		{"check_validate_schema_bundle_release_config", "template_name and channels", file(release, "catalog_templates: [{template_name: basic.yaml}]")},
		{"check_validate_schema_bundle_release_config", "at least one item", file(release, "catalog_templates: []")},
		{"check_bundle_images_in_fbc", "ghcr.io/a/b:c", file(template, "entries: [{schema: olm.bundle, name: a, image: ghcr.io/a/b:c}]")},
		{"check_olm_bundle_object_in_fbc", "want olm.csv.metadata", file(template, "entries: [{schema: olm.bundle, properties: [{type: olm.bundle.object}]}]")},
		{"check_dangling_bundles", "echo-operator.v0.2.0 has no upgrade", file(release,
			"catalog_templates: [{template_name: basic.yaml, channels: [candidate-v0], replaces: echo-operator.v0.1.0}]")},
		{"check_upgrade_graph_loop", "echo-operator.v0.3.0", file(release,
			"catalog_templates: [{template_name: basic.yaml, channels: [fast-v0], replaces: echo-operator.v0.2.0, skipRange: '>=0.1.0'}]")},
		{"check_replaces_availability", "echo-operator.v0.2.9", file(release,
			"catalog_templates: [{template_name: basic.yaml, channels: [fast-v0], replaces: echo-operator.v0.2.9}]")},
	}
	seen := map[string]bool{}
	for i, list := range [][]violation{cases, catalogCases} {
		for _, c := range list {
			seen[c.rule] = true
			t.Run(hubs[i].name+"/"+c.rule+"/"+c.want, func(t *testing.T) {
				dir := operatorDir(t, hubs[i])
				c.violate(t, dir)
				if problems := failures(t, dir)[c.rule]; !slices.ContainsFunc(problems, func(problem string) bool {
					return strings.Contains(problem, c.want)
				}) {
					t.Errorf("rule %s reported %q, want a problem that contains %q", c.rule, problems, c.want)
				}
			})
		}
	}
	for _, rule := range rules {
		if !seen[rule.name] {
			t.Errorf("no case violates rule %s", rule.name)
		}
	}
}

func TestRulesReportNothingForValidDirectory(t *testing.T) {
	for _, hub := range hubs {
		t.Run(hub.name, func(t *testing.T) {
			if problems := failures(t, operatorDir(t, hub)); len(problems) > 0 {
				t.Errorf("rules reported %v, want no problems", problems)
			}
		})
	}
}

// Each pull request has one bundle.
func TestRunWritesOneVersionForEachHub(t *testing.T) {
	output := t.TempDir()
	if err := run(options{root: repository, release: "0.3.0", output: output}); err != nil {
		t.Fatal(err)
	}
	for hub, want := range map[string][]string{
		"community-operators":      {"0.3.0", "ci.yaml"},
		"community-operators-prod": {"0.3.0", "catalog-templates", "ci.yaml"},
	} {
		entries, err := os.ReadDir(filepath.Join(output, hub, "operators/echo-operator"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s has %v, want %v", hub, names, want)
		}
	}
}

func TestRunRejectsWhatIsNoRelease(t *testing.T) {
	tarball := filepath.Join(t.TempDir(), "bundle.tar.gz")
	if err := exec.Command("tar", "-C", repository, "-czf", tarball, "config/rbac").Run(); err != nil {
		t.Fatal(err)
	}
	tagged := filepath.Join(t.TempDir(), "bundle")
	if err := os.CopyFS(tagged, os.DirFS(filepath.Join(repository, "bundle"))); err != nil {
		t.Fatal(err)
	}
	editYAML(t, filepath.Join(tagged, csvFile), func(csv map[string]any) {
		csv["metadata"].(map[string]any)["annotations"].(map[string]any)["containerImage"] = "ghcr.io/kkloud-io/echo-operator:v0.5.0"
	})
	for want, o := range map[string]options{
		"this is not the bundle of a release": {bundle: tagged},
		"has no directory bundle":             {bundle: tarball},
		"version 9.9.9 is not a release":      {release: "9.9.9"},
		"no such file":                        {bundle: filepath.Join(tagged, "absent.tar.gz")},
	} {
		o.root, o.output = repository, t.TempDir()
		if err := run(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("run(%+v) returned error %v, want one that contains %q", o, err, want)
		}
	}
}

const (
	repository = "../.."
	csvFile    = "manifests/echo-operator.clusterserviceversion.yaml"
)

// operatorDir creates a hub's operator directory with three versions of this repository's bundle.
func operatorDir(t *testing.T, hub hub) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "echo-operator")
	var published []releases.Release
	for _, version := range []string{"0.1.0", "0.2.0", "0.3.0"} {
		bundle := filepath.Join(t.TempDir(), version)
		if err := os.CopyFS(bundle, os.DirFS(filepath.Join(repository, "bundle"))); err != nil {
			t.Fatal(err)
		}
		editYAML(t, filepath.Join(bundle, csvFile), func(csv map[string]any) {
			metadata, spec := csv["metadata"].(map[string]any), csv["spec"].(map[string]any)
			metadata["name"], spec["version"] = "echo-operator.v"+version, version
			delete(metadata["annotations"].(map[string]any), "olm.skipRange")
		})
		if err := hub.write(repository, dir, bundle, published); err != nil {
			t.Fatal(err)
		}
		published = append(published, releases.Release{Version: version, Channels: []string{"candidate-v0", "fast-v0"}})
	}
	return dir
}

func failures(t *testing.T, dir string) map[string][]string {
	t.Helper()
	operator, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	failures := map[string][]string{}
	for _, rule := range rules {
		if problems := rule.check(operator); len(problems) > 0 {
			failures[rule.name] = problems
		}
	}
	return failures
}

func editYAML(t *testing.T, file string, edit func(map[string]any)) {
	t.Helper()
	var content map[string]any
	if err := readYAML(file, &content); err != nil {
		t.Fatal(err)
	}
	edit(content)
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	put(t, file, string(text))
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := writeFile(file, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

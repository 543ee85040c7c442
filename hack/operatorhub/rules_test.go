package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
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

	cases := []struct {
		rule, want string
		violate    func(t *testing.T, dir string)
	}{
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
		{"check_ci_upgrade_graph", "updateGraph is random", ci("updateGraph: random")},
		{"check_ci_upgrade_graph", "updateGraph is <nil>", ci("{}")},
		{"check_ci_upgrade_graph", "reviewers", ci("{updateGraph: semver-mode, reviewers: []}")},
		{"check_dangling_bundles", "echo-operator.v0.2.0 has no upgrade", replaces(map[string]string{"0.2.0": "0.1.0", "0.3.0": "0.1.0"})},
		{"check_upgrade_graph_loop", "echo-operator.v0.1.0", replaces(map[string]string{"0.1.0": "0.3.0", "0.2.0": "0.1.0", "0.3.0": "0.2.0"})},
		{"check_replaces_availability", "echo-operator.v0.2.9", replaces(map[string]string{"0.3.0": "0.2.9"})},
	}
	seen := map[string]bool{}
	for _, c := range cases {
		seen[c.rule] = true
		t.Run(c.rule+"/"+c.want, func(t *testing.T) {
			dir := operatorDir(t)
			c.violate(t, dir)
			if problems := failures(t, dir)[c.rule]; !slices.ContainsFunc(problems, func(problem string) bool {
				return strings.Contains(problem, c.want)
			}) {
				t.Errorf("rule %s reported %q, want a problem that contains %q", c.rule, problems, c.want)
			}
		})
	}
	for _, rule := range rules {
		if !seen[rule.name] {
			t.Errorf("no case violates rule %s", rule.name)
		}
	}
}

func TestRulesReportNothingForValidDirectory(t *testing.T) {
	for name, graph := range map[string]string{"semver": "updateGraph: semver-mode", "with reviewers": "{updateGraph: semver-mode, reviewers: [kkloud]}"} {
		t.Run(name, func(t *testing.T) {
			dir := operatorDir(t)
			put(t, filepath.Join(dir, "ci.yaml"), graph)
			if problems := failures(t, dir); len(problems) > 0 {
				t.Errorf("rules reported %v, want no problems", problems)
			}
		})
	}
}

func TestRunWritesEveryRelease(t *testing.T) {
	passed, err := run(repository, t.TempDir(), true)
	if err != nil || !passed {
		t.Errorf("run with -all: passed %t, error %v; want true and no error", passed, err)
	}
}

const (
	repository = "../.."
	csvFile    = "manifests/echo-operator.clusterserviceversion.yaml"
)

// operatorDir creates an operator directory with three versions of this repository's bundle.
func operatorDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "echo-operator")
	if err := copyFile(filepath.Join(repository, "config/operatorhub/ci.yaml"), filepath.Join(dir, "ci.yaml")); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"0.1.0", "0.2.0", "0.3.0"} {
		to := filepath.Join(dir, version)
		if err := os.CopyFS(to, os.DirFS(filepath.Join(repository, "bundle"))); err != nil {
			t.Fatal(err)
		}
		editYAML(t, filepath.Join(to, csvFile), func(csv map[string]any) {
			metadata, spec := csv["metadata"].(map[string]any), csv["spec"].(map[string]any)
			metadata["name"], spec["version"] = "echo-operator.v"+version, version
			delete(metadata["annotations"].(map[string]any), "olm.skipRange")
			delete(spec, "replaces")
			delete(spec, "skips")
		})
		if err := annotateOpenShiftVersions(to); err != nil {
			t.Fatal(err)
		}
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

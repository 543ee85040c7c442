package crdcompat

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

const (
	root    = "../../.."
	crdFile = "bundle/manifests/kkloud.io_echoes.yaml"
)

func corpus(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) (Corpus, error) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no seeds in testdata: %v", err)
	}
	var seeds []map[string]any
	for _, file := range files {
		for document := range strings.SplitSeq(string(read(t, file)), "\n---\n") {
			seeds = append(seeds, object(t, []byte(document)))
		}
	}
	return NewCorpus(crd, seeds, []string{"spec.resources.claims"})
}

func check(t *testing.T, corpus Corpus, replacement *apiextensionsv1.CustomResourceDefinition) []string {
	t.Helper()
	problems, err := corpus.Check(replacement)
	if err != nil {
		t.Fatal(err)
	}
	return problems
}

// The gate itself.
func TestReleasedEchoesStayValidAndUnchanged(t *testing.T) {
	for _, release := range load(t) {
		t.Run(release.Version, func(t *testing.T) {
			corpus, err := corpus(t, released(t, release))
			if err != nil {
				t.Fatal(err)
			}
			for _, problem := range check(t, corpus, current(t)) {
				t.Error(problem)
			}
		})
	}
}

// What is added since the last release is covered before it is released.
func TestEveryFieldIsCovered(t *testing.T) {
	if _, err := corpus(t, current(t)); err != nil {
		t.Error(err)
	}
}

// Each change is made to the first release, which stays as it is.
func TestGateRefuses(t *testing.T) {
	const (
		preflight = "OLM v1's preflight refuses"
		refused   = "an object that was valid is refused"
		changed   = "a stored object reads back different"
		another   = "the same manifest makes another object"
	)
	type change = func(root, spec *props)
	field := func(name string, edit func(field *props)) change {
		return func(_, spec *props) {
			property := spec.Properties[name]
			edit(&property)
			spec.Properties[name] = property
		}
	}
	echoes, err := corpus(t, first(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change change
		// want are pairs of a field and what happens to it.
		want [][2]string
	}{
		{"a lower maximum", field("replicas", func(p *props) { *p.Maximum = 4 }),
			[][2]string{{"spec.replicas", preflight}, {"spec.replicas", refused}}},
		{"a higher minimum", field("port", func(p *props) { *p.Minimum = 1024 }),
			[][2]string{{"spec.port", preflight}, {"spec.port", refused}}},
		{"a shorter maximal length", field("message", func(p *props) { *p.MaxLength = 16383 }),
			[][2]string{{"spec.message", preflight}, {"spec.message", refused}}},
		{"a new maximal length", field("args", func(p *props) { p.Items.Schema.MaxLength = new(int64(1000)) }),
			[][2]string{{"spec.args.items", preflight}, {"spec.args[0]", refused}}},
		{"a new pattern", field("image", func(p *props) { p.Pattern = "^ghcr.io/" }),
			[][2]string{{"spec.image", preflight}, {"spec.image", refused}}},
		{"another type", field("port", func(p *props) { p.Type, p.Format, p.Minimum, p.Maximum, p.Default = "string", "", nil, nil, nil }),
			[][2]string{{"spec.port", preflight}, {"spec.port", refused}}},
		{"a removed field", func(_, spec *props) { delete(spec.Properties, "targetPort") },
			[][2]string{{"spec.targetPort", preflight}, {"spec.targetPort", changed}, {"spec.targetPort", another}}},
		{"a removed field inside another", func(_, spec *props) { delete(spec.Properties["page"].Properties, "title") },
			[][2]string{{"spec.page.title", preflight}, {"spec.page.title", changed}}},
		{"another default", field("port", func(p *props) { p.Default = &apiextensionsv1.JSON{Raw: []byte("8080")} }),
			[][2]string{{"spec.port", preflight}, {"spec.port", another}}},
		{"a removed default", field("replicas", func(p *props) { p.Default = nil }),
			[][2]string{{"spec.replicas", preflight}, {"spec.replicas", another}}},
		{"a default for what had none", field("image", func(p *props) { p.Default = &apiextensionsv1.JSON{Raw: []byte(`"a"`)} }),
			[][2]string{{"spec.image", preflight}, {"spec.image", changed}}},
		{"a new field with a default", func(_, spec *props) {
			spec.Properties["language"] = props{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"en"`)}}
		}, [][2]string{{"spec.language", changed}}},
		{"a field that must now be set", func(_, spec *props) { spec.Required = append(spec.Required, "image") },
			[][2]string{{"spec", preflight}, {"spec.image", refused}}},
		{"a new field that must be set", func(_, spec *props) {
			spec.Properties["language"] = props{Type: "string"}
			spec.Required = append(spec.Required, "language")
		}, [][2]string{{"spec", preflight}, {"spec.language", refused}}},
		{"a rule that refuses what was valid", func(_, spec *props) {
			spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{
				Rule: "!has(self.page) || self.replicas < 5", Message: "pages have at most 4 replicas"})
		}, [][2]string{{"spec", preflight}, {"spec", refused}}},
		{"a rule on the name", func(root, _ *props) {
			root.XValidations = append(root.XValidations, apiextensionsv1.ValidationRule{
				Rule: "size(self.metadata.name) < 58", Message: "names have at most 57 characters"})
		}, [][2]string{{"^", preflight}, {"", refused}}},
		{"a removed value", func(root, _ *props) {
			status := root.Properties["status"].Properties["conditions"].Items.Schema.Properties["status"]
			status.Enum = status.Enum[:2]
			root.Properties["status"].Properties["conditions"].Items.Schema.Properties["status"] = status
		}, [][2]string{{"status.conditions.items.status", preflight}, {"status.conditions[0].status", refused}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			replacement := first(t)
			schema := replacement.Spec.Versions[0].Schema.OpenAPIV3Schema
			spec := schema.Properties["spec"]
			c.change(schema, &spec)
			schema.Properties["spec"] = spec

			problems := check(t, echoes, replacement)
			for _, want := range c.want {
				if !slices.ContainsFunc(problems, func(problem string) bool {
					return strings.Contains(problem, want[0]) && strings.Contains(problem, want[1])
				}) {
					t.Errorf("no problem says of %q: %s; there are:\n%s", want[0], want[1], strings.Join(problems, "\n"))
				}
			}
		})
	}
}

// The other side: what a release may bring.
func TestGateAgrees(t *testing.T) {
	replacement := first(t)
	spec := replacement.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Description = "Other words."
	spec.Properties["language"] = props{Type: "string"}
	replicas := spec.Properties["replicas"]
	replicas.Description = "Other words."
	spec.Properties["replicas"] = replicas
	replacement.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec

	echoes, err := corpus(t, first(t))
	if err != nil {
		t.Fatal(err)
	}
	if problems := check(t, echoes, replacement); len(problems) > 0 {
		t.Error(strings.Join(problems, "\n"))
	}
}

// A field that no generated object can set is noticed, not passed over.
func TestGateNoticesAFieldThatItDoesNotCover(t *testing.T) {
	old := first(t)
	spec := old.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Properties["odd"] = props{Type: "integer", XValidations: apiextensionsv1.ValidationRules{{Rule: "self == 42"}}}
	if _, err := corpus(t, old); err == nil || !strings.Contains(err.Error(), "spec.odd: no valid object") {
		t.Errorf("got %v, want an error that names spec.odd", err)
	}
}

func TestMatches(t *testing.T) {
	for pattern, want := range map[string][]string{
		"^#[0-9a-f]{2}$":   {"#00", "#aa"},
		"^(a|b+)?c*$":      {"", "bbc", "cc"},
		"^[A-Z]([a-z]*x)?": {"A", "Aax"},
	} {
		got := matches(pattern)
		for _, text := range want {
			if !slices.Contains(got, text) {
				t.Errorf("%s: %q is not in %q", pattern, text, got)
			}
		}
	}
}

func current(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return crd(t, read(t, filepath.Join(root, crdFile)))
}

func first(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return released(t, load(t)[0])
}

func released(t *testing.T, release releases.Release) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := release.File(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	return crd(t, text)
}

func load(t *testing.T) []releases.Release {
	t.Helper()
	list, err := releases.Load()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func crd(t *testing.T, text []byte) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

func object(t *testing.T, text []byte) map[string]any {
	t.Helper()
	text, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded(text).(map[string]any)
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

package crdcompat

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

func corpus(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) (Corpus, error) {
	t.Helper()
	var seeds []repo.Object
	for _, file := range repo.Glob(t, "testdata/*.yaml") {
		seeds = append(seeds, repo.Load(t, file)...)
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

func TestEchoesOfEveryReleaseStayValidAndUnchanged(t *testing.T) {
	for _, release := range loadReleases(t) {
		t.Run(release.Version, func(t *testing.T) {
			corpus, err := corpus(t, released(t, release))
			if err != nil {
				t.Fatal(err)
			}
			replacement := current(t)
			if slices.Contains(unbounded, release.Version) {
				replacement = withoutBounds(t, replacement)
			}
			for _, problem := range check(t, corpus, replacement) {
				t.Error(problem)
			}
		})
	}
}

// unbounded lists the releases that did not limit spec.command and spec.args. The limits bound the
// memory of the operator, which keeps every Echo in its cache. They make the API server reject an
// Echo with longer lists that these releases accepted, and OLM v1 reject the upgrade of the CRD unless
// its check is disabled. An Echo with longer lists that is stored stays valid: see
// TestStoredEchoBeyondTheBoundsStaysValidUntilItsListsChange.
var unbounded = []string{"0.1.0", "0.2.0", "0.3.0", "0.4.0"}

// newRules are the rules of spec that apply to fields that no release has. OLM v1 rejects the upgrade
// because of them, too.
var newRules = []string{"!has(self.statusCode) || ", "!has(self.readinessPath) || "}

// withoutBounds returns the CRD without exactly these limits and rules, and with the earlier rule that
// rejected empty lists without an image. Every other change is checked.
func withoutBounds(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	for _, name := range []string{"command", "args"} {
		list := spec.Properties[name]
		bounds := props{
			MaxItems: new(int64(64)),
			Items:    &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{Type: "string", MaxLength: new(int64(16384))}},
			XValidations: apiextensionsv1.ValidationRules{{
				Rule: "self.map(item, size(item)).sum() <= 32768", Message: name + " must have at most 32,768 characters in total",
			}},
		}
		got := props{MaxItems: list.MaxItems, Items: list.Items, XValidations: list.XValidations}
		if !reflect.DeepEqual(got, bounds) {
			gotYAML, _ := yaml.Marshal(got)
			wantYAML, _ := yaml.Marshal(bounds)
			t.Errorf("limits of spec.%s:\n%s\nwant:\n%s", name, gotYAML, wantYAML)
		}
		list.MaxItems, list.Items.Schema.MaxLength, list.XValidations = nil, nil, nil
		spec.Properties[name] = list
	}
	const rule = "has(self.image) || (!has(self.command) || size(self.command) == 0) && (!has(self.args) || size(self.args) == 0)"
	if got := spec.XValidations[0].Rule; got != rule {
		t.Errorf("rule for the image = %q, want %q", got, rule)
	}
	for i, prefix := range newRules {
		if got := spec.XValidations[i+1].Rule; !strings.HasPrefix(got, prefix) {
			t.Errorf("rule %d = %q, want one that starts with %q", i+1, got, prefix)
		}
	}
	spec.XValidations = slices.Delete(spec.XValidations, 1, 1+len(newRules))
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	spec.XValidations[0].Rule = "has(self.image) || !(has(self.command) || has(self.args))"
	return crd
}

// The API server does not check a value again that an update leaves unchanged.
func TestStoredEchoBeyondTheBoundsStaysValidUntilItsListsChange(t *testing.T) {
	after, err := newServer(current(t), "v1")
	if err != nil {
		t.Fatal(err)
	}
	manifest := func(name string, value ...any) map[string]any {
		return after.decode(map[string]any{
			"apiVersion": "kkloud.io/v1", "kind": "Echo",
			"metadata": map[string]any{"name": "sample", "resourceVersion": "1"},
			"spec":     map[string]any{"message": "m", "image": "i", name: value},
		})
	}
	item := strings.Repeat("x", 16384)
	for _, name := range []string{"command", "args"} {
		for what, list := range map[string][]any{
			"items":            slices.Repeat([]any{"x"}, 65),
			"characters":       {item + "x"},
			"total characters": {item, item, "x"},
		} {
			t.Run(name+" with too many "+what, func(t *testing.T) {
				stored, edited := manifest(name, list...), manifest(name, list...)
				edited["spec"].(map[string]any)["message"] = "edited"
				if errs := after.validateUpdate(edited, stored); len(errs) > 0 {
					t.Errorf("another message: %v, want no error", errs.ToAggregate())
				}
				if errs := after.validateUpdate(manifest(name, append(list, "x")...), stored); len(errs) == 0 {
					t.Error("one more item: no error, want one")
				}
				if errs := after.validate(stored); len(errs) == 0 {
					t.Error("new Echo: no error, want one")
				}
			})
		}
	}
}

// Fields that are new since the last release are covered before they are released.
func TestCorpusCoversEveryFieldOfCurrentCRD(t *testing.T) {
	if _, err := corpus(t, current(t)); err != nil {
		t.Error(err)
	}
}

// Each case changes the CRD of the first release.
func TestCheckReportsIncompatibleChange(t *testing.T) {
	const (
		preflight = "OLM v1 preflight rejects"
		rejected  = "valid object is rejected"
		changed   = "stored object changes"
		another   = "same manifest creates another object"
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
		// want contains pairs of a field and the problem that Check reports for it.
		want [][2]string
	}{
		{"a lower maximum", field("replicas", func(p *props) { *p.Maximum = 4 }),
			[][2]string{{"spec.replicas", preflight}, {"spec.replicas", rejected}}},
		{"a higher minimum", field("port", func(p *props) { *p.Minimum = 1024 }),
			[][2]string{{"spec.port", preflight}, {"spec.port", rejected}}},
		{"a shorter maximum length", field("message", func(p *props) { *p.MaxLength = 16383 }),
			[][2]string{{"spec.message", preflight}, {"spec.message", rejected}}},
		{"a new maximum length", field("args", func(p *props) { p.Items.Schema.MaxLength = new(int64(1000)) }),
			[][2]string{{"spec.args.items", preflight}, {"spec.args[0]", rejected}}},
		{"a new pattern", field("image", func(p *props) { p.Pattern = "^ghcr.io/" }),
			[][2]string{{"spec.image", preflight}, {"spec.image", rejected}}},
		{"another type", field("port", func(p *props) { p.Type, p.Format, p.Minimum, p.Maximum, p.Default = "string", "", nil, nil, nil }),
			[][2]string{{"spec.port", preflight}, {"spec.port", rejected}}},
		{"a removed field", func(_, spec *props) { delete(spec.Properties, "targetPort") },
			[][2]string{{"spec.targetPort", preflight}, {"spec.targetPort", changed}, {"spec.targetPort", another}}},
		{"a removed field inside another", func(_, spec *props) { delete(spec.Properties["page"].Properties, "title") },
			[][2]string{{"spec.page.title", preflight}, {"spec.page.title", changed}}},
		{"another default", field("port", func(p *props) { p.Default = &apiextensionsv1.JSON{Raw: []byte("8080")} }),
			[][2]string{{"spec.port", preflight}, {"spec.port", another}}},
		{"a removed default", field("replicas", func(p *props) { p.Default = nil }),
			[][2]string{{"spec.replicas", preflight}, {"spec.replicas", another}}},
		{"a default for a field without one", field("image", func(p *props) { p.Default = &apiextensionsv1.JSON{Raw: []byte(`"a"`)} }),
			[][2]string{{"spec.image", preflight}, {"spec.image", changed}}},
		{"a new field with a default", func(_, spec *props) {
			spec.Properties["language"] = props{Type: "string", Default: &apiextensionsv1.JSON{Raw: []byte(`"en"`)}}
		}, [][2]string{{"spec.language", changed}}},
		{"an optional field becomes required", func(_, spec *props) { spec.Required = append(spec.Required, "image") },
			[][2]string{{"spec", preflight}, {"spec.image", rejected}}},
		{"a new required field", func(_, spec *props) {
			spec.Properties["language"] = props{Type: "string"}
			spec.Required = append(spec.Required, "language")
		}, [][2]string{{"spec", preflight}, {"spec.language", rejected}}},
		{"a rule that rejects valid objects", func(_, spec *props) {
			spec.XValidations = append(spec.XValidations, apiextensionsv1.ValidationRule{
				Rule: "!has(self.page) || self.replicas < 5", Message: "pages have at most 4 replicas"})
		}, [][2]string{{"spec", preflight}, {"spec", rejected}}},
		{"a rule on the name", func(root, _ *props) {
			root.XValidations = append(root.XValidations, apiextensionsv1.ValidationRule{
				Rule: "size(self.metadata.name) < 58", Message: "names have at most 57 characters"})
		}, [][2]string{{"^", preflight}, {"", rejected}}},
		{"a removed enum value", func(root, _ *props) {
			status := root.Properties["status"].Properties["conditions"].Items.Schema.Properties["status"]
			status.Enum = status.Enum[:2]
			root.Properties["status"].Properties["conditions"].Items.Schema.Properties["status"] = status
		}, [][2]string{{"status.conditions.items.status", preflight}, {"status.conditions[0].status", rejected}}},
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
					t.Errorf("field %q: Check did not report %q, but:\n%s", want[0], want[1], strings.Join(problems, "\n"))
				}
			}
		})
	}
}

func TestCheckAcceptsCompatibleChange(t *testing.T) {
	replacement := first(t)
	spec := replacement.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Description = "Another description."
	spec.Properties["language"] = props{Type: "string"}
	replicas := spec.Properties["replicas"]
	replicas.Description = "Another description."
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

func TestNewCorpusFailsForFieldThatNoGeneratedObjectSets(t *testing.T) {
	old := first(t)
	spec := old.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.Properties["odd"] = props{Type: "integer", XValidations: apiextensionsv1.ValidationRules{{Rule: "self == 42"}}}
	if _, err := corpus(t, old); err == nil || !strings.Contains(err.Error(), "spec.odd: no valid object") {
		t.Errorf("NewCorpus returned error %v, want one that names spec.odd", err)
	}
}

func TestMatchesCoversAlternativesAndRepetitions(t *testing.T) {
	for pattern, want := range map[string][]string{
		"^#[0-9a-f]{2}$":   {"#00", "#aa"},
		"^(a|b+)?c*$":      {"", "bbc", "cc"},
		"^[A-Z]([a-z]*x)?": {"A", "Aax"},
	} {
		got := matches(pattern)
		for _, text := range want {
			if !slices.Contains(got, text) {
				t.Errorf("matches(%q) = %q, want it to contain %q", pattern, got, text)
			}
		}
	}
}

func current(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return crd(t, repo.Read(t, repo.CRDFile))
}

func first(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	return released(t, loadReleases(t)[0])
}

func released(t *testing.T, release releases.Release) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	text, err := release.File("bundle/manifests/kkloud.io_echoes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return crd(t, text)
}

func loadReleases(t *testing.T) []releases.Release {
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

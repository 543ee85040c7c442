package values

import (
	"encoding/binary"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// walkSchemas calls visit for the schemas of metadata and spec. That of an item or an entry has the path of
// the list or the map.
func walkSchemas(schema *props, path string, visit func(path string, schema *props)) {
	visit(path, schema)
	for name, property := range schema.Properties {
		if at := join(path, name); at != "status" {
			walkSchemas(&property, at, visit)
		}
	}
	if schema.Items != nil {
		walkSchemas(schema.Items.Schema, path, visit)
	}
	if schema.AdditionalProperties != nil {
		walkSchemas(schema.AdditionalProperties.Schema, path, visit)
	}
}

func TestEveryValidationRuleIsInTheTable(t *testing.T) {
	found := sets.Set[string]{}
	walkSchemas(Current.root, "", func(path string, schema *props) {
		for _, rule := range schema.XValidations {
			i := slices.IndexFunc(Rules, func(r Rule) bool { return strings.HasPrefix(rule.Message, r.Message) })
			if i < 0 {
				t.Errorf("%s has a rule with the message %q, which is not in the table: add it to Rules in rules.go, with a violation and a repair",
					path, rule.Message)
				continue
			}
			found.Insert(Rules[i].Message)
		}
	})
	for _, rule := range Rules {
		if !found.Has(rule.Message) || len(rule.Violations) == 0 {
			t.Errorf("the CRD has no rule %q, or the entry no violation: remove it from Rules, or run make manifests", rule.Message)
		}
	}
}

// keywords are those that the generator evaluates, except for pure metadata.
var keywords = map[string]func(*props) bool{
	"minimum": func(s *props) bool { return s.Minimum != nil }, "maximum": func(s *props) bool { return s.Maximum != nil },
	"minLength": func(s *props) bool { return s.MinLength != nil }, "maxLength": func(s *props) bool { return s.MaxLength != nil },
	"minItems": func(s *props) bool { return s.MinItems != nil }, "maxItems": func(s *props) bool { return s.MaxItems != nil },
	"maxProperties": func(s *props) bool { return s.MaxProperties != nil }, "pattern": func(s *props) bool { return s.Pattern != "" },
	"enum": func(s *props) bool { return len(s.Enum) > 0 }, "type": func(s *props) bool { return s.Type != "" || s.XIntOrString },
	"x-kubernetes-list-map-keys": func(s *props) bool { return len(s.XListMapKeys) > 0 },
}

func TestEveryKeywordHasAnInvalidValue(t *testing.T) {
	inner := regexp.MustCompile(`\[0\]|\.(cpu|example\.com/pool)$`)
	violated := sets.Set[string]{}
	for _, field := range Current.Fields() {
		for _, invalid := range field.Invalid {
			violated.Insert(inner.ReplaceAllString(invalid.Texts[0], "") + " " + invalid.Keyword)
		}
	}
	walkSchemas(Current.spec, "spec", func(path string, schema *props) {
		for keyword, isSet := range keywords {
			if isSet(schema) && !violated.Has(path+" "+keyword) {
				t.Errorf("%s has the keyword %s, but no invalid value for it", path, keyword)
			}
		}
		for _, name := range schema.Required {
			if !violated.Has(path + "." + name + " required") {
				t.Errorf("%s.%s is required, but no invalid value leaves it out", path, name)
			}
		}
		known := *schema
		known.Minimum, known.Maximum, known.MinLength, known.MaxLength, known.MinItems, known.MaxItems = nil, nil, nil, nil, nil, nil
		known.MaxProperties, known.Pattern, known.Enum, known.Type, known.Required, known.XListMapKeys = nil, "", nil, "", nil, nil
		known.Properties, known.Items, known.AdditionalProperties, known.XValidations, known.XIntOrString, known.AnyOf = nil, nil, nil, nil, false, nil
		known.Description, known.Default, known.Format, known.XListType, known.XMapType, known.Nullable = "", nil, "", nil, nil, false
		if !reflect.DeepEqual(known, apiextensionsv1.JSONSchemaProps{}) {
			t.Errorf("%s has a keyword that the generator does not evaluate: %+v", path, known)
		}
	})
}

// A client that applies a list sends whole items, without their defaults. So each apply would change the Echo.
func TestNoFieldOfAnItemHasADefault(t *testing.T) {
	expectNoDefault := func(path string, schema *props) {
		if schema.Default != nil {
			t.Errorf("%s is in an item of a list and has the default %s, want none", path, schema.Default.Raw)
		}
	}
	walkSchemas(Current.root, "", func(path string, schema *props) {
		if schema.Items != nil {
			walkSchemas(schema.Items.Schema, path, expectNoDefault)
		}
	})
}

func TestRandomEchoesSetAndUnsetEveryField(t *testing.T) {
	set, unset := sets.Set[string]{}, sets.Set[string]{}
	for seed := range uint64(300) {
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&Current.Random(binary.BigEndian.AppendUint64(nil, seed)).Spec)
		if err != nil {
			t.Fatal(err)
		}
		present := sets.Set[string]{}
		addPaths(present, "spec", spec)
		set = set.Union(present)
		walkSchemas(Current.spec, "spec", func(path string, schema *props) {
			if !present.Has(path) && schema.Default == nil {
				unset.Insert(path)
			}
		})
	}
	walkSchemas(Current.spec, "spec", func(path string, schema *props) {
		if !set.Has(path) {
			t.Errorf("no random Echo has %s", path)
		}
		if !unset.Has(path) && path != "spec" && schema.Default == nil {
			t.Errorf("every random Echo has %s", path)
		}
	})
}

func addPaths(paths sets.Set[string], path string, value any) {
	paths.Insert(path)
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			addPaths(paths, join(path, name), field)
		}
	case []any:
		for _, item := range v {
			addPaths(paths, path, item)
		}
	}
}

func TestMatchingStringsHaveTheLengthsOfTheirMode(t *testing.T) {
	const pattern = `^[a-z]{2,8}(-[a-z0-9]{1,8})*$`
	for text, got := range map[string]string{
		"aa": source{mode: minimum}.matching(pattern, 35, false),
		"aaaaaaaa" + strings.Repeat("-aaaaaaaa", 3): source{mode: maximum}.matching(pattern, 35, false),
		"aaaaaaaa" + strings.Repeat("-aaaaaaaa", 4): source{mode: maximum}.matching(pattern, 35, true),
		"bbbbbbbb-bbbbbbbb-bbbbbbbb":                source{mode: another}.matching(pattern, 35, false),
	} {
		if got != text {
			t.Errorf("string = %q, want %q", got, text)
		}
	}
}

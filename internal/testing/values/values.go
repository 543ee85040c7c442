// Package values generates the values of an Echo's fields from the schema of the CRD: the minimum, the
// maximum and another valid value, invalid values of each keyword, and random values. A new field needs
// nothing here. What the keywords of a schema do not say is in the table of rules.
package values

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/config/crd"
)

type (
	props  = apiextensionsv1.JSONSchemaProps
	object = map[string]any
)

// Kind is the kind of the Echoes.
var Kind = echov1.GroupVersion.WithKind("Echo")

// Schema is the schema of Echoes in a CRD.
type Schema struct{ root, spec *props }

// Current is the schema of the CRD of this tree.
var Current = func() *Schema {
	var current apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crd.Echoes, &current); err != nil {
		panic(err)
	}
	return Of(&current)
}()

// Of returns the schema of a CRD.
func Of(crd *apiextensionsv1.CustomResourceDefinition) *Schema {
	root := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	return &Schema{root, new(root.Properties["spec"])}
}

// Field is a field of the spec, and values for it.
type Field struct {
	Path                      string // In the spec: page.title. That of the spec itself is empty.
	Required                  bool
	Minimum, Maximum, Another any
	Invalid                   []Invalid
}

// Invalid is a value that violates one keyword of a schema.
type Invalid struct {
	Keyword string
	Value   any // Nil if the field is unset.
	// Texts are parts of the API server's message: the path of the value, and the limit.
	Texts []string
}

// Fields returns the spec and all its fields. The fields of a list's items are part of the list.
func (s *Schema) Fields() []Field { return fields("", s.spec, true) }

func fields(path string, schema *props, required bool) []Field {
	if choices, found := choices[path]; found && len(choices) == 0 {
		return nil
	}
	field := Field{Path: path, Required: required, Invalid: invalid(path, schema)}
	for i := range field.Invalid {
		field.Invalid[i].Texts[0] = strings.Trim("spec."+path, ".") + field.Invalid[i].Texts[0]
	}
	if required {
		field.Invalid = append(field.Invalid, Invalid{"required", nil, []string{strings.Trim("spec."+path, "."), "Required value"}})
	}
	field.Minimum = source{mode: minimum}.value(path, schema)
	field.Maximum = source{mode: maximum}.value(path, schema)
	field.Another = source{mode: another}.value(path, schema)
	all := []Field{field}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		all = append(all, fields(join(path, name), new(schema.Properties[name]), slices.Contains(schema.Required, name))...)
	}
	return all
}

// With returns a spec with few other fields than the given one. The spec is valid if the value is.
// With nil, the field is unset.
func (s *Schema) With(path string, value any) map[string]any {
	spec, isObject := value.(object)
	if path != "" || !isObject {
		spec = source{mode: minimum}.value("", s.spec).(object)
		s.set(spec, path, value)
	}
	spec = runtime.DeepCopyJSON(spec)
	repair(spec, path)
	return spec
}

// set sets a field, and what its parents require.
func (s *Schema) set(spec object, path string, value any) {
	schema, names := s.spec, strings.Split(path, ".")
	for i, name := range names[:len(names)-1] {
		schema = new(schema.Properties[name])
		if _, found := spec[name].(object); !found {
			spec[name] = source{mode: minimum}.value(strings.Join(names[:i+1], "."), schema)
		}
		spec = spec[name].(object)
	}
	if last := names[len(names)-1]; value == nil {
		delete(spec, last)
	} else {
		spec[last] = value
	}
}

// Case is an Echo, and the parts of the API server's message if it rejects the Echo.
type Case struct {
	Name      string
	Echo      *unstructured.Unstructured
	Rejection []string
}

// Cases returns Echoes that set each field to each of its values, and those of the rules.
func (s *Schema) Cases() (all []Case) {
	add := func(name string, spec any, rejection ...string) {
		echo := &unstructured.Unstructured{Object: object{"spec": spec}}
		echo.SetGroupVersionKind(Kind)
		echo.SetName("cases")
		all = append(all, Case{name, echo, rejection})
	}
	for _, f := range s.Fields() {
		name := strings.Trim("spec."+f.Path, ".")
		add(name+" minimum", s.With(f.Path, f.Minimum))
		add(name+" maximum", s.With(f.Path, f.Maximum))
		add(name+" another", s.With(f.Path, f.Another))
		if !f.Required {
			full := source{mode: maximum}.value("", s.spec).(object)
			s.set(full, f.Path, nil)
			add(name+" unset", s.With("", full))
		}
		for i, invalid := range f.Invalid {
			spec := invalid.Value
			if f.Path != "" {
				minimal := source{mode: minimum}.value("", s.spec).(object)
				s.set(minimal, f.Path, invalid.Value)
				spec = minimal
			}
			add(fmt.Sprintf("%s violates %s %d", name, invalid.Keyword, i), spec, invalid.Texts...)
		}
	}
	for _, rule := range Rules {
		for i, values := range slices.Concat(rule.Valid, rule.Violations) {
			name, rejection := fmt.Sprintf("rule %q valid %d", rule.Message, i), []string(nil)
			if i >= len(rule.Valid) {
				name, rejection = fmt.Sprintf("rule %q violation %d", rule.Message, i-len(rule.Valid)), []string{rule.Message}
			}
			add(name, source{mode: minimum}.value("", s.spec), rejection...)
			for path, value := range values {
				if rest, found := strings.CutPrefix(path, "spec."); found {
					s.set(all[len(all)-1].Echo.Object["spec"].(object), rest, value)
				} else if err := unstructured.SetNestedField(all[len(all)-1].Echo.Object, value, strings.Split(path, ".")...); err != nil {
					panic(err) // The paths are constants.
				}
			}
		}
	}
	return all
}

func join(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

// invalid returns values that violate a keyword of the schema. The first text is the path of the
// violation below that of the schema.
func invalid(path string, schema *props) (all []Invalid) {
	add := func(keyword string, value any, texts ...string) {
		all = append(all, Invalid{keyword, value, append([]string{""}, texts...)})
	}
	// inside adds the violations of an item, an entry or a field, in a value that contains it.
	inside := func(path, at string, schema *props, wrap func(any) any) {
		for _, v := range invalid(path, schema) {
			v.Value, v.Texts[0] = wrap(v.Value), at+v.Texts[0]
			all = append(all, v)
		}
	}
	small := source{mode: minimum}
	switch {
	case schema.XIntOrString:
		add("type", true)
	case schema.Type == "string":
		add("type", int64(1), "string")
	default:
		add("type", "text", schema.Type)
	}
	switch {
	case len(schema.Enum) > 0:
		add("enum", "unknown", fmt.Sprint(decoded(schema.Enum[0].Raw)))
	case schema.Type == "string" || schema.XIntOrString:
		invalidTexts(schema, add)
	case schema.Type == "integer":
		if schema.Minimum != nil {
			add("minimum", int64(*schema.Minimum)-1, fmt.Sprintf("greater than or equal to %v", int64(*schema.Minimum)))
		}
		if schema.Maximum != nil {
			add("maximum", int64(*schema.Maximum)+1, fmt.Sprintf("less than or equal to %v", int64(*schema.Maximum)))
		}
	case schema.Type == "array":
		items := small.list(path, schema, 2)
		if schema.MinItems != nil {
			add("minItems", items[:*schema.MinItems-1], fmt.Sprintf("at least %d", *schema.MinItems))
		}
		if schema.MaxItems != nil {
			add("maxItems", small.list(path, schema, int(*schema.MaxItems)+1), "Too many", fmt.Sprint(*schema.MaxItems))
		}
		if len(schema.XListMapKeys) > 0 {
			add("x-kubernetes-list-map-keys", []any{items[0], items[0]}, "Duplicate value")
		}
		item, path := schema.Items.Schema, path+".*"
		inside(path, "[0]", item, func(value any) any { return []any{value} })
		for name := range item.Properties {
			inside(join(path, name), "[0]."+name, new(item.Properties[name]), func(value any) any {
				changed := small.value(path, item).(object)
				changed[name] = value
				return []any{changed}
			})
		}
		for _, name := range item.Required {
			changed := small.value(path, item).(object)
			delete(changed, name)
			all = append(all, Invalid{"required", []any{changed}, []string{"[0]." + name, "Required value"}})
		}
	case schema.AdditionalProperties != nil:
		if schema.MaxProperties != nil {
			add("maxProperties", small.entries(path, schema, int(*schema.MaxProperties)+1), "Too many", fmt.Sprint(*schema.MaxProperties))
		}
		key := keys(path)[0]
		inside(path+".*", "."+key, schema.AdditionalProperties.Schema, func(value any) any { return object{key: value} })
	}
	return all
}

// invalidTexts adds strings that violate the length or the pattern.
func invalidTexts(schema *props, add func(keyword string, value any, texts ...string)) {
	small := source{mode: minimum}
	if schema.MinLength != nil && *schema.MinLength > 0 {
		add("minLength", strings.Repeat("a", int(*schema.MinLength)-1), fmt.Sprintf("at least %d", *schema.MinLength))
	}
	if limit := schema.MaxLength; limit != nil {
		long := strings.Repeat("é", int(*limit)+1)
		if schema.Pattern != "" {
			long = source{mode: maximum}.matching(schema.Pattern, int(*limit), true)
		}
		add("maxLength", long, "Too long", fmt.Sprint(*limit))
	}
	if schema.Pattern == "" {
		return
	}
	pattern, valid := regexp.MustCompile(schema.Pattern), small.matching(schema.Pattern, 0, false)
	for _, text := range []string{"", valid + "\n" + valid, valid + "é", " " + valid, "-" + valid, "A b", "a.*.b"} {
		if !pattern.MatchString(text) && (text != "" || schema.MinLength == nil) {
			add("pattern", text, schema.Pattern)
		}
	}
}

// decoded decodes a value of the schema, with integers as int64.
func decoded(text []byte) any {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		panic(err) // A parsed CRD contains only valid JSON.
	}
	return value
}

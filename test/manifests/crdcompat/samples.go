package crdcompat

import (
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
)

type props = apiextensionsv1.JSONSchemaProps

// many is the maximum length of fields that have no limit.
const many = 4096

// formats maps string formats to a valid value.
var formats = map[string]string{
	"byte":      "ZWNobw==",
	"date":      "2026-11-20",
	"date-time": "2026-11-20T12:00:00Z",
	"duration":  "1h0m0s",
	"email":     "echo@example.com",
	"hostname":  "echo.example.com",
	"ipv4":      "192.0.2.1",
	"ipv6":      "2001:db8::1",
	"uri":       "https://example.com/echo",
	"uuid":      "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
}

// examples maps fields, whose validation rules no keyword of the schema replaces, to valid values.
var examples = map[string][]any{
	"imagePullSecrets": {[]any{map[string]any{"name": "mirror"}}, []any{}, []any{map[string]any{"name": "a.b"}, map[string]any{"name": "0"}}},
	"parentRefs": {
		[]any{map[string]any{"name": "public"}},
		[]any{
			map[string]any{"name": "public", "namespace": "a", "sectionName": "http", "port": int64(80)},
			map[string]any{"name": "public", "namespace": "a", "sectionName": "https", "port": int64(443)},
		},
	},
	// The timeout is at most the period.
	"periodSeconds":  {int64(300), int64(1), int64(2)},
	"timeoutSeconds": {int64(1), int64(60), int64(2)},
	"responseHeaders": {
		[]any{map[string]any{"name": "Retry-After", "value": "120"}},
		[]any{},
		[]any{map[string]any{"name": "a", "value": "1"}, map[string]any{"name": "b", "value": "2"}},
	},
	"tolerations": {
		[]any{map[string]any{"key": "example.com/pool", "operator": "Equal", "value": "canary", "effect": "NoSchedule"}},
		[]any{},
		[]any{map[string]any{"operator": "Exists"}, map[string]any{"key": "k", "effect": "NoExecute", "tolerationSeconds": int64(30)}},
		[]any{map[string]any{"key": "k", "operator": "", "value": "", "effect": ""}, map[string]any{"key": "k", "effect": "PreferNoSchedule"}},
	},
}

// samplesOf returns values for a field.
func samplesOf(name string, s *props) []any {
	if values, found := examples[name]; found {
		return values
	}
	return samples(s)
}

// samples returns values for a schema: first a typical one, then its limits, then all alternatives. It
// evaluates each keyword alone, so a combination of keywords can reject a value.
func samples(s *props) []any {
	var values []any
	switch {
	case len(s.Enum) > 0:
		for _, value := range s.Enum {
			values = append(values, decoded(value.Raw))
		}
	case s.XIntOrString:
		values = append(texts(s), int64(1))
	case s.Type == "string":
		values = texts(s)
	case s.Type == "integer":
		low, high := int64(0), int64(math.MaxInt64)
		if s.Format == "int32" {
			high = math.MaxInt32
		}
		if s.Minimum != nil {
			low = int64(*s.Minimum)
		}
		if s.Maximum != nil {
			high = int64(*s.Maximum)
		}
		values = []any{min(max(2, low), high), low, high}
	case s.Type == "number":
		low, high := 0.0, math.MaxFloat32
		if s.Minimum != nil {
			low = *s.Minimum
		}
		if s.Maximum != nil {
			high = *s.Maximum
		}
		values = []any{min(max(1.5, low), high), low, high}
	case s.Type == "boolean":
		values = []any{true, false}
	case s.Type == "array":
		values = lists(s)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		for _, value := range samples(s.AdditionalProperties.Schema) {
			values = append(values, map[string]any{"key": value})
		}
		values = append(values, map[string]any{})
	case len(s.Properties) > 0:
		values = objects(s)
	default:
		values = []any{map[string]any{}}
	}
	if s.Nullable {
		values = append(values, nil)
	}
	return values
}

func texts(s *props) []any {
	low, high := 0, many
	if s.MinLength != nil {
		low = int(*s.MinLength)
	}
	if s.MaxLength != nil {
		high = int(*s.MaxLength)
	}
	plain := "text"
	plain = plain[:min(len(plain), high)] + strings.Repeat("x", max(0, low-len(plain)))
	if format := formats[s.Format]; format != "" {
		return []any{format}
	}
	if s.Pattern == "" {
		return []any{plain, strings.Repeat("x", low), strings.Repeat("x", high), strings.Repeat("ế", high)}
	}
	var values []any
	for _, text := range matches(s.Pattern) {
		if length := utf8.RuneCountInString(text); low <= length && length <= high {
			values = append(values, text)
		}
	}
	if len(values) == 0 {
		return []any{plain} // if the pattern rejects it, generate reports that the field is not covered
	}
	return values
}

func lists(s *props) []any {
	if s.Items == nil || s.Items.Schema == nil {
		return []any{[]any{}}
	}
	low, high := 0, 3
	if s.MinItems != nil {
		low = int(*s.MinItems)
	}
	if s.MaxItems != nil {
		high = int(*s.MaxItems)
	}
	keys := 0 // So many items have different keys.
	for _, key := range s.XListMapKeys {
		keyed := s.Items.Schema.Properties[key]
		keys = max(keys, len(samples(&keyed)))
	}
	if len(s.XListMapKeys) > 0 {
		high = min(high, keys)
	}
	items := samples(s.Items.Schema)
	distinct := s.XListType != nil && *s.XListType != "atomic"
	// list returns a list that starts with an item. The others are equal, because a rule may limit the
	// length of all, unless they have to differ.
	list := func(length int, first any) any {
		values := []any{}
		for i := range length {
			item := runtime.DeepCopyJSONValue(items[0])
			if i == 0 {
				item = runtime.DeepCopyJSONValue(first)
			} else if distinct {
				item = runtime.DeepCopyJSONValue(items[i%len(items)])
			}
			for _, key := range s.XListMapKeys {
				keyed := s.Items.Schema.Properties[key]
				choices := samples(&keyed)
				item.(map[string]any)[key] = choices[i%len(choices)]
			}
			values = append(values, item)
		}
		return values
	}
	values := []any{list(max(1, low), items[0]), list(low, items[0]), list(high, items[0])}
	for _, item := range items[1:] {
		values = append(values, list(max(1, low), item))
	}
	return values
}

// objects returns an object with all fields, one with only the required fields, and for every field one
// with each of its samples and one without it.
func objects(s *props) []any {
	full := map[string]any{}
	for name, property := range s.Properties {
		full[name] = samplesOf(name, &property)[0]
	}
	values := []any{full, required(s)}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		for _, value := range samplesOf(name, &property)[1:] {
			object := runtime.DeepCopyJSON(full)
			object[name] = value
			values = append(values, object)
		}
		if !slices.Contains(s.Required, name) {
			object := runtime.DeepCopyJSON(full)
			delete(object, name)
			values = append(values, object)
		}
	}
	return values
}

// required returns an object with only the required fields.
func required(s *props) map[string]any {
	object := map[string]any{}
	for _, name := range s.Required {
		property := s.Properties[name]
		if len(property.Properties) > 0 {
			object[name] = required(&property)
		} else {
			object[name] = samples(&property)[0]
		}
	}
	return object
}

// decoded decodes JSON as the API server does, with integers as int64.
func decoded(text []byte) any {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		panic(err) // a parsed CRD contains only valid JSON
	}
	return value
}

package crdcompat

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// setting is a value of one field; without a value, the field is unset.
type setting struct {
	path  []string
	value any
	unset bool
}

func (s setting) String() string { return strings.Join(s.path, ".") }

// settings returns every sample of every field of an object schema, and each optional field unset.
// Fields of nested objects count as fields, fields of list items do not.
func settings(s *props, path ...string) []setting {
	var all []setting
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		at := slices.Concat(path, []string{name})
		switch {
		case len(path) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata"}, name):
			continue
		case len(property.Properties) > 0:
			all = append(all, setting{path: at, value: required(&property)})
			all = append(all, settings(&property, at...)...)
		default:
			for _, value := range samplesOf(name, &property) {
				all = append(all, setting{path: at, value: value})
			}
		}
		if !slices.Contains(s.Required, name) {
			all = append(all, setting{path: at, unset: true})
		}
	}
	return all
}

// with returns a copy of an object with the settings and with the fields that their parents require.
func with(object map[string]any, s *props, settings ...setting) map[string]any {
	object = runtime.DeepCopyJSON(object)
	for _, setting := range settings {
		parent, schema := object, s
		last := len(setting.path) - 1
		for _, name := range setting.path[:last] {
			property := schema.Properties[name]
			schema = &property
			child, ok := parent[name].(map[string]any)
			if !ok {
				if setting.unset {
					break
				}
				child = required(schema)
				parent[name] = child
			}
			parent = child
		}
		if setting.unset {
			delete(parent, setting.path[last])
		} else {
			parent[setting.path[last]] = runtime.DeepCopyJSONValue(setting.value)
		}
	}
	return object
}

// generate returns the seeds and objects that it generates from the schema, all of which the server
// accepts: the smallest object and the object with all fields, both with every setting and with every
// pair of settings that are typical, at a limit or unset. It fails if no object contains a sample of a
// field, unless rejected contains that field: the schema's rules reject it with every value.
func generate(server *server, s *props, base map[string]any, seeds []map[string]any, rejected []string) ([]map[string]any, error) {
	var accepted []map[string]any
	add := func(object map[string]any) bool {
		if len(server.validate(server.decode(object))) > 0 {
			return false
		}
		accepted = append(accepted, object)
		return true
	}
	for _, seed := range seeds {
		if !add(seed) {
			return nil, fmt.Errorf("seed %v is not valid: %w", seed["metadata"], server.validate(server.decode(seed)).ToAggregate())
		}
	}

	smallest := required(s)
	maps.Copy(smallest, base)
	all := settings(s)
	// Two rounds, because some fields are valid only together with others.
	full := smallest
	for range 2 {
		for _, one := range all {
			if larger := with(full, s, one); !one.unset && !has(full, one.path) && add(larger) {
				full = larger
			}
		}
	}

	var pairable []setting
	samples := map[string]int{}
	for _, one := range all {
		ok := add(with(smallest, s, one))
		ok = add(with(full, s, one)) || ok
		switch known := slices.Contains(rejected, one.String()); {
		case !ok && !known:
			return nil, fmt.Errorf("%s: no valid object with value %s (unset: %t). Extend samples.go, or add the field to the rejected fields",
				one, short(one.value), one.unset)
		case ok && known && !one.unset:
			return nil, fmt.Errorf("%s: a valid object has this field. Remove it from the rejected fields", one)
		case ok && (one.unset || samples[one.String()] < 3):
			samples[one.String()]++
			pairable = append(pairable, one)
		}
	}
	for i, one := range pairable {
		for _, other := range pairable[:i] {
			if one.path[0] != other.path[0] || within(one.path, other.path) || within(other.path, one.path) {
				continue
			}
			add(with(smallest, s, other, one))
			add(with(full, s, other, one))
		}
	}
	return accepted, nil
}

// has reports whether the object has a value at the path. An empty list counts as none, because other
// fields may be valid only with items.
func has(object map[string]any, path []string) bool {
	value, ok := object[path[0]]
	if list, is := value.([]any); is && len(list) == 0 {
		return false
	}
	if !ok || len(path) == 1 {
		return ok
	}
	child, ok := value.(map[string]any)
	return ok && has(child, path[1:])
}

// short formats a value for a message and truncates it.
func short(value any) string {
	text := []rune(fmt.Sprint(value))
	if len(text) > 80 {
		return string(text[:80]) + "…"
	}
	return string(text)
}

func within(path, parent []string) bool {
	return len(path) >= len(parent) && slices.Equal(path[:len(parent)], parent)
}

package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Action is what a Change does.
type Action string

// The actions of a Change.
const (
	Add    Action = "add"
	Set    Action = "change"
	Remove Action = "remove"
)

// Change is one change of an object as JSON.
type Change struct {
	Action Action
	// Leaf is the field that the change is about.
	Leaf Field
	// Field is what a JSON patch adds, replaces or removes: the leaf, or, where that does not exist,
	// its first ancestor that does not exist either.
	Field Field
	// Value is the new value of Field, as JSON represents it.
	Value any
	// Items is the length of the list to which the change adds an item.
	Items int
}

// String names the change: "spec.replicas: change".
func (c Change) String() string {
	where := ""
	if c.Items > 0 && c.Field[len(c.Field)-1].Name == "" {
		where = " before the first item"
	}
	return fmt.Sprintf("%s: %s%s", c.Leaf, c.Action, where)
}

// serverFields are assigned by the API server, or identify the object.
var serverFields = []string{
	"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
	"deletionTimestamp", "deletionGracePeriodSeconds", "managedFields",
}

// maxAbsent is how many ancestors of a field may be missing for Changes to add it.
const maxAbsent = 1

// Changes returns a change and a removal of each leaf field that the object has, and an addition of
// each that its type has but the object does not: fields of structs, map entries, and list items.
func Changes(object client.Object) ([]Change, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var live map[string]any
	if err := json.Unmarshal(text, &live); err != nil {
		return nil, err
	}
	var w walker
	t := reflect.TypeOf(object).Elem()
	for _, name := range []string{"metadata", "spec"} {
		field, _ := t.FieldByNameFunc(func(n string) bool {
			return strings.EqualFold(n, map[string]string{"metadata": "ObjectMeta", "spec": "Spec"}[name])
		})
		w.existing(field.Type, live[name], Field{named(name)})
	}
	return w.changes, nil
}

type walker struct{ changes []Change }

func (w *walker) add(c Change) { w.changes = append(w.changes, c) }

// existing collects the changes of a value that exists.
func (w *walker) existing(t reflect.Type, value any, path Field) {
	t = dereference(t)
	switch v := value.(type) {
	case map[string]any:
		if t.Kind() == reflect.Map {
			w.entries(t, v, path)
			return
		}
		for _, f := range structFields(t, path) {
			if child, exists := v[f.name]; exists {
				w.existing(f.t, child, path.Append(named(f.name)))
				continue
			}
			missing := path.Append(named(f.name))
			for _, s := range samples(f.t, missing, maxAbsent) {
				w.add(Change{Action: Add, Leaf: s.leaf, Field: missing, Value: s.value})
			}
		}
	case []any:
		w.items(t, v, path)
	default:
		w.add(Change{Action: Set, Leaf: path, Field: path, Value: another(value, path)})
		w.add(Change{Action: Remove, Leaf: path, Field: path})
	}
}

// entries collects the changes of a map.
func (w *walker) entries(t reflect.Type, entries map[string]any, path Field) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		w.existing(t.Elem(), entries[key], path.Append(keyed(key)))
	}
	added := path.Append(keyed(newKey(path)))
	for _, s := range samples(t.Elem(), added, maxAbsent) {
		w.add(Change{Action: Add, Leaf: s.leaf, Field: added, Value: s.value})
	}
}

// items collects the changes of a list.
func (w *walker) items(t reflect.Type, items []any, path Field) {
	for i, item := range items {
		at := path.Append(Step{Index: i})
		w.existing(t.Elem(), item, at)
		if _, isObject := item.(map[string]any); isObject {
			w.add(Change{Action: Remove, Leaf: at, Field: at})
		}
	}
	for _, s := range samples(t.Elem(), path, 0) {
		w.add(Change{Action: Add, Leaf: path, Field: path.Append(Step{Index: 0}), Value: s.value, Items: len(items)})
		w.add(Change{Action: Add, Leaf: path, Field: path.Append(named("-")), Value: s.value, Items: len(items)})
	}
}

// structField is a field of a struct by its name in JSON.
type structField struct {
	name string
	t    reflect.Type
}

// structFields returns the fields of a struct that a client may set.
func structFields(t reflect.Type, path Field) (fields []structField) {
	isMetadata := len(path) > 0 && path[len(path)-1].Name == "metadata"
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" && f.Anonymous:
			fields = append(fields, structFields(dereference(f.Type), path)...)
		case name == "" || name == "-" || isMetadata && slices.Contains(serverFields, name):
		default:
			fields = append(fields, structField{name, f.Type})
		}
	}
	return fields
}

func dereference(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// sample is a value for a field, in which the leaf is set.
type sample struct {
	leaf  Field
	value any
}

// samples returns values for a field that does not exist. For a struct it returns one for each of
// its fields, as long as not more than so many levels of structs are missing.
func samples(t reflect.Type, path Field, levels int) []sample {
	t = dereference(t)
	if value, known := knownValue(path, t.Kind() == reflect.Slice); known {
		return []sample{{path, value}}
	}
	one := func(value any) []sample { return []sample{{path, value}} }
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		return one("123Mi")
	case t == reflect.TypeFor[intstr.IntOrString]():
		return one(int64(1))
	case t == reflect.TypeFor[metav1.Time]() || t == reflect.TypeFor[metav1.FieldsV1]():
		return nil
	case t.Kind() == reflect.Struct:
		if levels == 0 {
			return nil
		}
		var all []sample
		for _, f := range structFields(t, path) {
			for _, s := range samples(f.t, path.Append(named(f.name)), levels-1) {
				all = append(all, sample{s.leaf, map[string]any{f.name: s.value}})
			}
		}
		return all
	case t.Kind() == reflect.Map:
		key := newKey(path)
		return wrap(samples(t.Elem(), path.Append(keyed(key)), levels), func(value any) any { return map[string]any{key: value} })
	case t.Kind() == reflect.Slice:
		return wrap(samples(t.Elem(), path, levels), func(value any) any { return []any{value} })
	case t.Kind() == reflect.Bool:
		return one(true)
	case t.Kind() == reflect.String:
		return one("chaos")
	default:
		return one(int64(7))
	}
}

func wrap(all []sample, in func(any) any) []sample {
	for i := range all {
		all[i].value = in(all[i].value)
	}
	return all
}

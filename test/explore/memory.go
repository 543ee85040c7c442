package explore

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/kkloud-io/echo-operator/internal/controller"
)

// remembered are the fields of the reconciler that a crash loses. Each of its reconciliations may change them.
var remembered = []string{"memories", "versions"}

// field returns a field that is not exported.
func field(pointer any, name string) reflect.Value {
	return readable(reflect.ValueOf(pointer).Elem().FieldByName(name))
}

// copyOperator returns a reconciler with a copy of what it remembers, or with none.
func copyOperator(r *controller.EchoReconciler, withMemory bool) *controller.EchoReconciler {
	c := &controller.EchoReconciler{
		Client: r.Client, APIReader: r.APIReader, Recorder: r.Recorder, ServerImage: r.ServerImage, VerifierImage: r.VerifierImage,
		AllowEveryNodeVerification: r.AllowEveryNodeVerification, Optional: r.Optional, Metrics: r.Metrics,
	}
	if withMemory {
		for _, name := range remembered {
			copyValue(field(c, name), field(r, name))
		}
	}
	return c
}

var mutexType, timeType = reflect.TypeFor[sync.Mutex](), reflect.TypeFor[time.Time]()

// copyValue copies a value with what its pointers and maps hold.
func copyValue(to, from reflect.Value) {
	from = readable(from)
	switch from.Kind() { //nolint:exhaustive // Values of other kinds hold no others.
	case reflect.Struct:
		if from.Type() == mutexType {
			return
		}
		if from.Type() == timeType {
			to.Set(from)
			return
		}
		for i := range from.NumField() {
			copyValue(readable(to.Field(i)), from.Field(i))
		}
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyValue(to.Elem(), from.Elem())
		}
	case reflect.Map:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
		for entries := from.MapRange(); entries.Next(); {
			value := reflect.New(from.Type().Elem()).Elem()
			source := reflect.New(from.Type().Elem()).Elem()
			source.Set(entries.Value())
			copyValue(value, source)
			to.SetMapIndex(entries.Key(), value)
		}
	default:
		to.Set(from)
	}
}

// readable returns an addressable value as if its field were exported.
func readable(v reflect.Value) reflect.Value {
	if !v.CanAddr() {
		return v
	}
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() //nolint:gosec // The value has this type.
}

const versionPrefix = "version "

// describe returns what the operator remembers in parts, of which some are versions or UIDs. It adds the versions.
func describe(r *controller.EchoReconciler, versions map[string]bool) (parts []string) {
	for _, name := range remembered {
		parts = append(parts, describeValue(field(r, name), versions)...)
	}
	return parts
}

func describeValue(v reflect.Value, versions map[string]bool) (parts []string) {
	v = readable(v)
	switch v.Kind() { //nolint:exhaustive // Values of other kinds hold no others.
	case reflect.Struct:
		if v.Type() == mutexType {
			return nil
		}
		if v.Type() == timeType {
			t := v.Interface().(time.Time) //nolint:forcetypeassert // It has this type.
			if t.IsZero() {
				return []string{"-"}
			}
			return []string{t.Sub(epoch).String()}
		}
		for i := range v.NumField() {
			switch v.Type().Field(i).Name {
			case "used", "swept": // They only bound the memory.
			case "version":
				version := readable(v.Field(i)).String()
				versions[version] = true
				parts = append(parts, versionPrefix+version)
			default:
				parts = append(parts, describeValue(v.Field(i), versions)...)
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			return []string{"nil"}
		}
		return describeValue(v.Elem(), versions)
	case reflect.Map:
		type entry struct {
			key   string
			value []string
		}
		var all []entry
		for entries := v.MapRange(); entries.Next(); {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(entries.Value())
			all = append(all, entry{fmt.Sprint(entries.Key().Interface()), describeValue(value, versions)})
		}
		slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.key, b.key) })
		for _, e := range all {
			parts = append(append(parts, e.key), e.value...)
		}
	default:
		parts = append(parts, fmt.Sprint(v.Interface()))
	}
	return parts
}

package children

import (
	"encoding/binary"
	"reflect"
	"regexp"
	"strings"
	"testing"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/random"
)

func TestEveryFieldOfTheSpecIsInTheGoldenFilesAndFuzzed(t *testing.T) {
	all := map[string]bool{}
	addFields(all, "", reflect.TypeFor[echov1.EchoSpec]())
	golden, fuzzed := map[string]bool{}, map[string]bool{}
	addValues(t, golden, newEcho(everyField))
	for seed := range uint64(200) {
		addValues(t, fuzzed, random.Echo(binary.BigEndian.AppendUint64(nil, seed)))
	}
	for field := range all {
		if !golden[field] {
			t.Errorf("everyField does not set spec.%s: set it in children_test.go, and run with -update", field)
		}
		if !fuzzed[field] {
			t.Errorf("no random Echo has spec.%s: add edge cases in internal/testing/random", field)
		}
	}
}

// addFields adds the paths of the fields of a type of this API.
func addFields(all map[string]bool, prefix string, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[echov1.Echo]().PkgPath() {
		return
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all[prefix+name] = true
		addFields(all, prefix+name+".", field.Type)
	}
}

// item is the key of a list's item in a path.
var item = regexp.MustCompile(`\[[^]]*\]`)

// addValues adds the paths of the fields that an Echo sets.
func addValues(t *testing.T, values map[string]bool, echo *echov1.Echo) {
	t.Helper()
	for path := range fields(t, echo.Spec) {
		for path = item.ReplaceAllString(path, ""); path != ""; path = path[:max(0, strings.LastIndex(path, "."))] {
			values[path] = true
		}
	}
}

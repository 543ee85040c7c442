package children

import (
	"encoding/binary"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/random"
)

func TestEveryFieldOfTheSpecIsInTheGoldenFilesAndFuzzed(t *testing.T) {
	fields := map[string]bool{}
	addFields(fields, "", reflect.TypeFor[echov1.EchoSpec]())
	golden, fuzzed := map[string]bool{}, map[string]bool{}
	addValues(t, golden, newEcho(everyField))
	for seed := range uint64(200) {
		addValues(t, fuzzed, random.Echo(binary.BigEndian.AppendUint64(nil, seed)))
	}
	golden["statusCode"] = true // With a page it has a default.
	for field := range fields {
		if !golden[field] {
			t.Errorf("everyField does not set spec.%s: set it in children_test.go, and run with -update", field)
		}
		if !fuzzed[field] {
			t.Errorf("no random Echo has spec.%s: add edge cases in internal/testing/random", field)
		}
	}
}

// addFields adds the paths of the fields of a type of this API.
func addFields(fields map[string]bool, prefix string, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t.PkgPath() != reflect.TypeFor[echov1.Echo]().PkgPath() {
		return
	}
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		fields[prefix+name] = true
		addFields(fields, prefix+name+".", field.Type)
	}
}

// addValues adds the paths of the fields that an Echo sets.
func addValues(t *testing.T, values map[string]bool, echo *echov1.Echo) {
	t.Helper()
	text, err := json.Marshal(echo.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var spec any
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	var add func(prefix string, value any)
	add = func(prefix string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, child := range value {
				values[prefix+name] = true
				add(prefix+name+".", child)
			}
		case []any:
			for _, item := range value {
				add(prefix, item)
			}
		}
	}
	add("", spec)
}

package values

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kube-openapi/pkg/validation/errors"
)

type props = apiextensions.JSONSchemaProps

// walk calls visit for the schema of every field. That of an item has the path of the list with [0], and that of an entry of
// a map the path of the map with .*.
func walk(path string, s props, visit func(path string, s props)) {
	visit(path, s)
	for name, property := range s.Properties {
		if path != "" || name == "spec" {
			walk(strings.TrimPrefix(path+"."+name, "."), property, visit)
		}
	}
	if s.Items != nil {
		walk(path+"[0]", *s.Items.Schema, visit)
	}
	if s.AdditionalProperties != nil {
		walk(path+".*", *s.AdditionalProperties.Schema, visit)
	}
}

var entryOfMap = regexp.MustCompile(`(labels|annotations|nodeSelector|limits|requests)\.\w+$`)

// limits returns the keywords of a schema that reject a value, by the code of the error.
func limits(s props) map[int32]bool {
	return map[int32]bool{
		errors.MinFailCode: s.Minimum != nil, errors.MaxFailCode: s.Maximum != nil, errors.PatternFailCode: s.Pattern != "",
		errors.TooShortFailCode: s.MinLength != nil, errors.TooLongFailCode: s.MaxLength != nil, errors.EnumFailCode: len(s.Enum) > 0,
		errors.MinItemsFailCode: s.MinItems != nil, errors.MaxItemsFailCode: s.MaxItems != nil, errors.TooManyPropertiesCode: s.MaxProperties != nil,
	}
}

func TestEveryFieldHasValuesAndEveryKeywordAndRuleRejectsOne(t *testing.T) {
	type violation struct {
		path string
		code int32
	}
	found, messages := sets.Set[violation]{}, ""
	for _, c := range Cases() {
		for _, err := range keywords.Validate(c.Echo.Object).Errors {
			if v, is := err.(*errors.Validation); is { //nolint:errorlint // The validator wraps no error.
				found.Insert(violation{entryOfMap.ReplaceAllString(strings.TrimPrefix(v.Name, "."), "$1.*"), v.Code()})
			}
		}
		errs := append(keywordErrors(c.Echo.Object), ruleErrors(c.Echo.Object)...)
		if isValid := len(c.Rejection) == 0; isValid != (len(errs) == 0) {
			t.Errorf("%s: errors = %v, want none: %t", c.Name, errs, isValid)
		}
		messages += strings.Join(c.Rejection, "\n")
	}
	walk("", *crdSchema, func(path string, s props) {
		isField := strings.HasPrefix(path, "spec.") && !strings.HasSuffix(path, "]")
		if isField && !slices.ContainsFunc(fields, func(f entry) bool { return entryOfMap.ReplaceAllString("spec."+f.path, "$1.*") == path }) {
			t.Errorf("%s has no entry in fields.go: add one with its bounds", path)
		}
		for code, isSet := range limits(s) {
			if isSet && !found.Has(violation{path, code}) {
				t.Errorf("%s: fields.go has no value that a keyword rejects: error %d of kube-openapi", path, code)
			}
		}
		for _, name := range s.Required {
			if !found.Has(violation{strings.TrimPrefix(path+"."+name, "."), errors.RequiredFailCode}) {
				t.Errorf("%s: fields.go has no value without the required field %s", path, name)
			}
		}
		for _, rule := range s.XValidations {
			if !strings.Contains(messages, rule.Message) {
				t.Errorf("%s: fields.go has no value that violates the rule with the message %q", path, rule.Message)
			}
		}
	})
}

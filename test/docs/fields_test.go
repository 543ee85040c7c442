package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const (
	fieldsPage = "docs/echo.md"
	statusPage = "docs/status.md"
	crd        = "config/crd/bases/kkloud.io_echoes.yaml"
)

// leaves returns the fields of a schema that have no fields of their own, by their path.
func leaves(path string, schema apiextensionsv1.JSONSchemaProps) map[string]apiextensionsv1.JSONSchemaProps {
	isResources := path == "resources" || strings.HasSuffix(path, ".resources") // Kubernetes describes their fields.
	if len(schema.Properties) == 0 || isResources {
		return map[string]apiextensionsv1.JSONSchemaProps{path: schema}
	}
	all := map[string]apiextensionsv1.JSONSchemaProps{}
	for name, property := range schema.Properties {
		maps.Copy(all, leaves(strings.TrimPrefix(path+"."+name, "."), property))
	}
	return all
}

// values returns the bounds, the default and the allowed values of a field.
func values(schema apiextensionsv1.JSONSchemaProps) (all []string) {
	for _, bound := range []*float64{schema.Minimum, schema.Maximum} {
		if bound != nil {
			all = append(all, strconv.FormatFloat(*bound, 'f', -1, 64))
		}
	}
	for _, bound := range []*int64{schema.MaxLength, schema.MaxItems, schema.MaxProperties} {
		if bound != nil {
			all = append(all, fmt.Sprint(*bound))
		}
	}
	if schema.Default != nil && schema.Type != "array" {
		all = append(all, "default "+strings.Trim(string(schema.Default.Raw), `"`))
	}
	for _, value := range schema.Enum {
		all = append(all, strings.Trim(string(value.Raw), `"`))
	}
	return all
}

var thousands = regexp.MustCompile(`(\d),(\d{3})`)

// describes reports whether a text of a page contains a value as a whole word.
func describes(text, value string) bool {
	text = thousands.ReplaceAllString(strings.ReplaceAll(text, "`", ""), "$1$2")
	return regexp.MustCompile(`(^|[^\w.])` + regexp.QuoteMeta(value) + `($|\W)`).MatchString(text)
}

func TestEveryFieldIsDescribedWithItsBoundsAndDefault(t *testing.T) {
	var schema apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict([]byte(readFile(t, crd)), &schema); err != nil {
		t.Fatal(err)
	}
	echo := schema.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties

	described := map[string]string{}
	for _, row := range rows(t, fieldsPage, "field | rule") {
		described[strings.Trim(row[0], "`")] = row[1]
	}
	// A field without a row has a section, and command and args have one together.
	for _, section := range strings.Split(readFile(t, fieldsPage), "\n### ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		for field := range strings.SplitSeq(heading, " and ") {
			if described[field] == "" {
				described[field] = text
			}
		}
	}
	spec := leaves("", echo["spec"])
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		text, exists := described[field]
		if !exists {
			t.Errorf("%s does not describe the field spec.%s: add a row or a section", fieldsPage, field)
			continue
		}
		for _, value := range values(spec[field]) {
			if !describes(text, value) {
				t.Errorf("%s: the description of spec.%s lacks %q, which %s has", fieldsPage, field, value, crd)
			}
		}
	}
	for field := range described {
		if _, exists := spec[field]; !exists && strings.Contains(field, ".") {
			t.Errorf("%s describes spec.%s, which %s does not have", fieldsPage, field, crd)
		}
	}

	var documented []string
	for _, row := range rows(t, statusPage, "field | meaning") {
		documented = append(documented, strings.Trim(row[0], "`"))
	}
	slices.Sort(documented)
	if status := slices.Sorted(maps.Keys(echo["status"].Properties)); !slices.Equal(documented, status) {
		t.Errorf("%s describes the fields %q of the status, want %q", statusPage, documented, status)
	}
}

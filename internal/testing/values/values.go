// Package values has valid and invalid values for every field of an Echo, and makes random Echoes from them.
package values

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/randfill/bytesource"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/config/crd"
)

type object = map[string]any

// The API server makes the other schemas from that of the CRD.
var (
	crdSchema  = readSchema()
	structural = must(schema.NewStructural(crdSchema))
	keywords   = validation.NewSchemaValidatorFromOpenAPI(structural.ToKubeOpenAPI())
	rules      = cel.NewValidator(structural, true, math.MaxInt64)
)

func readSchema() *apiextensions.JSONSchemaProps {
	var current apiextensionsv1.CustomResourceDefinition
	var internal apiextensions.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crd.Echoes, &current); err != nil {
		panic(err)
	}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&current, &internal, nil); err != nil {
		panic(err)
	}
	return internal.Spec.Validation.OpenAPIV3Schema
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err) // The CRD and the tables are constants.
	}
	return value
}

// keywordErrors returns what the API server reports of an Echo before it evaluates the rules.
func keywordErrors(echo object) field.ErrorList {
	return append(validation.ValidateCustomResource(nil, echo, keywords), listtype.ValidateListSetsAndMaps(nil, structural, echo)...)
}

func ruleErrors(echo object) field.ErrorList {
	errs, _ := rules.Validate(context.Background(), nil, structural, defaulted(echo), nil, math.MaxInt64)
	return errs
}

func defaulted(echo object) object {
	echo = runtime.DeepCopyJSON(echo)
	defaulting.Default(echo, structural)
	return echo
}

// edit returns a copy of an Echo with changes, by path. An unset parent gets its first valid value. Nil unsets a field.
func edit(echo object, changes object) object {
	echo = runtime.DeepCopyJSON(echo)
	for path, value := range changes {
		parent, names := echo, strings.Split(path, ".")
		for i, name := range names[:len(names)-1] {
			name, isItem := strings.CutSuffix(name, "[0]")
			if items, isList := parent[name].([]any); parent[name] == nil || isList && len(items) == 0 {
				parent[name] = decoded(firstValid(strings.Join(append(slices.Clone(names[:i]), name), ".")))
			}
			if isItem {
				parent = parent[name].([]any)[0].(object)
			} else {
				parent = parent[name].(object)
			}
		}
		switch name, isItem := strings.CutSuffix(names[len(names)-1], "[0]"); {
		case value == nil:
			delete(parent, name)
		case isItem:
			parent[name] = []any{decoded(value)}
		default:
			parent[name] = decoded(value)
		}
	}
	return echo
}

// firstValid returns the first valid value of an object or a list.
func firstValid(path string) any {
	i := slices.IndexFunc(fields, func(f entry) bool { return "spec."+f.path == path })
	if i < 0 {
		return object{}
	}
	return fields[i].valid[0]
}

// decoded returns a copy of a value as a JSON decoder returns it, with integers as int64.
func decoded(value any) (copied any) {
	if err := json.Unmarshal(must(json.Marshal(value)), &copied); err != nil {
		panic(err)
	}
	return copied
}

var smallest = object{
	"apiVersion": echov1.GroupVersion.String(), "kind": "Echo", "metadata": object{"name": "hello"}, "spec": object{"message": "m"},
}

// withEveryField returns an Echo with the changes and the last valid value of every field that the rules permit beside them.
func withEveryField(changes object) object {
	all := []object{changes}
	for _, f := range fields {
		all = append(all, f.changes(f.valid[len(f.valid)-1]))
	}
	return editedValidly(smallest, append(all, changes))
}

// EveryField returns a spec that sets every field of a custom server, where possible to another value than its default.
func EveryField() echov1.EchoSpec {
	return typed(withEveryField(object{"spec.image": "docker.io/library/nginx:1.29"})).Spec
}

func typed(echo object) *echov1.Echo {
	result := &echov1.Echo{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(echo, result); err != nil {
		panic(err) // The schema is generated from the type.
	}
	return result
}

// Case is an Echo, and the parts of the API server's message if it rejects the Echo.
type Case struct {
	Name      string
	Echo      *unstructured.Unstructured
	Rejection []string
}

// Cases returns Echoes that set each field to each of its values, that leave it unset, and those of the combinations.
func Cases() (all []Case) {
	add := func(name string, echo object, isValid bool) {
		c := Case{Name: name, Echo: &unstructured.Unstructured{Object: echo}}
		if !isValid {
			c.Rejection = []string{"is invalid"}
			errs := keywordErrors(echo)
			for _, err := range errs {
				c.Rejection = append(c.Rejection, err.Field) // Only messages of rules are the same in every version of Kubernetes.
			}
			if len(errs) == 0 {
				for _, err := range ruleErrors(echo) {
					c.Rejection = append(c.Rejection, err.Detail)
				}
			}
		}
		all = append(all, c)
	}
	for _, f := range fields {
		for i, value := range f.valid {
			add(fmt.Sprintf("spec.%s valid %d", f.path, i), edit(smallest, f.changes(value)), true)
		}
		for i, value := range f.invalid {
			add(fmt.Sprintf("spec.%s invalid %d", f.path, i), edit(smallest, f.changes(value)), false)
		}
		var wrongType any = "text"
		if _, isText := f.valid[0].(string); isText {
			wrongType = 1
		}
		add("spec."+f.path+" of another type", edit(smallest, f.changes(wrongType)), false)
		if !slices.Contains(f.invalid, nil) {
			add("spec."+f.path+" unset beside all other fields", edit(withEveryField(f.with), object{"spec." + f.path: nil}), true)
		}
	}
	for _, changes := range validCombinations {
		add(fmt.Sprint(changes), edit(smallest, changes), true)
	}
	for _, changes := range invalidCombinations {
		add(fmt.Sprint(changes), edit(smallest, changes), false)
	}
	return all
}

// edits are the valid changes of the tables.
var edits = func() []object {
	all := slices.Clone(validCombinations)
	for _, f := range fields {
		for _, value := range f.valid {
			all = append(all, f.changes(value))
		}
	}
	return all
}()

// Random returns a valid Echo with the defaults of the API server. The same data returns the same Echo. Eight bytes of data are enough.
func Random(data []byte) *echov1.Echo {
	random := rand.New(bytesource.New(data)) //nolint:gosec // It must be reproducible.
	names := []string{"hello", "a", "0", "a--b", "echo", "1-2-3", strings.Repeat("n", 56)}
	name := names[random.Intn(len(names))]
	chosen := make([]object, random.Intn(24))
	for i := range chosen {
		if chosen[i] = edits[random.Intn(len(edits))]; random.Intn(4) == 0 {
			chosen[i] = object{"spec." + freeTexts[random.Intn(len(freeTexts))]: randomText(random)}
		}
	}
	result := typed(defaulted(editedValidly(smallest, chosen)))
	result.ObjectMeta = metav1.ObjectMeta{Namespace: "op-demo", Name: name, UID: "11111111-2222-3333-4444-555555555555"}
	return result
}

// editedValidly returns the Echo with those of the changes that no rule rejects, in their order.
func editedValidly(echo object, changes []object) object {
	edited := echo
	for _, c := range changes {
		edited = edit(edited, c)
	}
	switch half := len(changes) / 2; {
	case len(ruleErrors(edited)) == 0:
		return edited
	case half == 0:
		return echo
	default:
		return editedValidly(editedValidly(echo, changes[:half]), changes[half:])
	}
}

// randomText returns a string of pieces with a special meaning in HTML, for the kubelet, in Go templates, in terminals or in logs.
func randomText(random *rand.Rand) string {
	pieces := []string{
		"a", " ", "\n", "\r\n", "\t", "\x00", "\x1b[31m", "\u202e", "\ufeff", "\u2028", "é", "😀", "<", "</title>", "</main>", "<script>alert(1)</script>",
		"<!--", "-->", "]]>", "&amp;", "&#0;", `"`, "'", "`", `\`, "%s%n", "{{.}}", "$", "$$", "$(HOME)", "$(ECHO_TEXT)", "$(", "level=error",
	}
	chosen := make([]string, 1+random.Intn(8))
	for i := range chosen {
		chosen[i] = pieces[random.Intn(len(pieces))]
	}
	return strings.Join(chosen, "")
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// field is a field of the spec, and values to lead it through.
type field struct {
	// path is its place in the spec: page.title.
	path string
	// with is what an Echo needs beside it.
	with map[string]any
	// minimum, maximum and another are valid values; all nil where there is none.
	minimum, maximum, another any
	// invalid are values that the API server refuses.
	invalid []any
	// refusal is what the API server names then, if it is not the path.
	refusal string
	// required is true where it cannot be unset.
	required bool
}

const (
	ownImage = "docker.io/library/own:1"
	longest  = 16384
)

// fields are all of the spec.
func fields() []field {
	own, page := map[string]any{"image": ownImage}, map[string]any{"page": map[string]any{}}
	return []field{
		{path: "message", required: true, minimum: "m", maximum: strings.Repeat("🦜", longest), another: "$(HOME) <b> \"q\"\n\ttwo  lines\r\n",
			invalid: []any{"", strings.Repeat("m", longest+1), "a\x00b", 1}},
		{path: "replicas", minimum: 1, maximum: 5, another: 3, invalid: []any{0, 6, -1, 1.5, "two"}},
		{path: "port", minimum: 1, maximum: 65535, another: 8080, invalid: []any{0, 65536, -1, "http"}},
		{path: "targetPort", minimum: 1, maximum: 65535, another: 8080, invalid: []any{0, 65536, -1, "http"}},
		{path: "page", minimum: map[string]any{}, another: map[string]any{"title": "t"},
			maximum: map[string]any{"title": strings.Repeat("&", 253), "color": "#ffffff", "language": "vi"}, invalid: []any{"yes", []any{}}},
		{path: "page.title", with: page, minimum: "", maximum: strings.Repeat("t", 253), another: "</title>", invalid: []any{strings.Repeat("t", 254), 1}},
		{path: "page.language", with: page, minimum: "vi", maximum: "abcdefgh" + strings.Repeat("-a2345678", 3), another: "pt-BR",
			invalid: []any{"", "v", "pt_BR", "abcdefgh" + strings.Repeat("-abcdefgh", 4)}},
		{path: "page.color", with: page, minimum: "#000000", maximum: "#ffffff", another: "#2196f3", invalid: []any{"", "blue", "#12345", "#1234567"}},
		{path: "image", minimum: "a", maximum: strings.Repeat("a", 1024), another: ownImage, invalid: []any{"", strings.Repeat("a", 1025), 1}},
		{path: "command", with: own, minimum: []any{}, maximum: slices.Repeat([]any{"$(ECHO_TEXT)"}, 100), another: []any{"serve"}, invalid: []any{"serve", []any{1}}},
		{path: "args", with: own, minimum: []any{}, maximum: slices.Repeat([]any{"$(ECHO_PORT)"}, 100), another: []any{""}, invalid: []any{"serve", []any{1}}},
		{path: "resources", minimum: map[string]any{}, another: map[string]any{"requests": map[string]any{"cpu": 1}},
			maximum: map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"cpu": "128", "memory": "4Ti"}}, invalid: []any{"small", []any{}}},
		{path: "resources.requests", minimum: map[string]any{"cpu": "1n"}, maximum: map[string]any{"cpu": "128", "memory": "4Ti", "ephemeral-storage": "1.5e12"},
			another: map[string]any{"memory": "123456789m"}, invalid: []any{map[string]any{"cpu": "much"}, map[string]any{"cpu": true}}},
		{path: "resources.limits", minimum: map[string]any{"cpu": 0}, maximum: map[string]any{"cpu": "128", "memory": "4Ti", "ephemeral-storage": "1.5e12"},
			another: map[string]any{"cpu": "0.0001"}, invalid: []any{map[string]any{"cpu": "much"}, map[string]any{"cpu": true}}},
		{path: "resources.claims", invalid: []any{[]any{map[string]any{"name": "gpu"}}}, refusal: "spec.resources: Invalid value: claims are not supported"},
	}
}

// change sets fields of the spec, by their path; nil unsets one.
type change struct {
	set map[string]any
	// refused is what the API server has to name when it refuses the change.
	refused string
	// rejected is what it says of the Deployment when the Echo itself can be written.
	rejected string
}

// sequence leads the field through its values and back.
func (f field) sequence() (start map[string]any, changes []change) {
	start = map[string]any{"message": "m"}
	maps.Copy(start, f.with)
	to := func(value any, refused string) {
		changes = append(changes, change{set: map[string]any{f.path: value}, refused: refused})
	}
	name := cmp.Or(f.refusal, "spec."+f.path)
	if f.minimum != nil {
		to(f.minimum, "")
		to(f.maximum, "")
	}
	for _, value := range f.invalid {
		to(value, name)
	}
	if f.minimum != nil {
		to(f.another, "")
		to(f.minimum, "")
	}
	if f.required {
		to(nil, name)
	} else {
		to(nil, "")
	}
	return start, changes
}

// pairs are fields that depend on each other.
func pairs() map[string][]change {
	set := func(pathsAndValues ...any) change {
		c := change{set: map[string]any{}}
		for i := 0; i < len(pathsAndValues); i += 2 {
			c.set[pathsAndValues[i].(string)] = pathsAndValues[i+1] //nolint:gosec // They come in pairs.
		}
		return c
	}
	refused := func(c change, words string) change { c.refused = words; return c }
	rejected := func(c change, words string) change { c.rejected = words; return c }
	const needsImage = "command and args are for a server of your own: set image, too"
	cpu := func(quantity string) map[string]any { return map[string]any{"cpu": quantity} }
	return map[string][]change{
		"replicas and the budget": {set("replicas", 2), set("replicas", 1), set("replicas", 5), set("replicas", nil), set("replicas", 2)},
		"page and args": {
			set("page.title", "<t>"), set("image", ownImage, "args", []any{"$(ECHO_TEXT)"}), set("page", nil), set("page.language", "vi"), set("image", nil, "args", nil)},
		"image and command": {
			refused(set("command", []any{"serve"}), needsImage), set("image", ownImage, "command", []any{"serve"}, "args", []any{"-v"}),
			refused(set("image", nil), needsImage), set("command", nil), refused(set("image", nil), needsImage), set("args", nil), set("image", nil)},
		"targetPort and port": {set("targetPort", 80), set("port", 5678), set("targetPort", 5678), set("port", 80, "targetPort", 80), set("port", nil, "targetPort", nil)},
		"targetPort and privilege": {
			set("targetPort", 1023), set("targetPort", 1024), set("targetPort", 1023, "image", ownImage, "args", []any{"$(ECHO_PORT)"}), set("targetPort", nil), set("image", nil, "args", nil)},
		"requests and limits": {
			set("resources.limits", cpu("1")), rejected(set("resources.requests", cpu("2")), "must be less than or equal to cpu limit"),
			set("resources.limits", cpu("2")), rejected(set("resources.requests", cpu("-1")), "must be greater than or equal to 0"),
			set("resources.requests", nil), set("resources", nil)},
		"page and the longest message": {
			set("page.title", strings.Repeat("\"", 253), "message", strings.Repeat("&", longest)), set("message", strings.Repeat("🦜", longest)),
			set("page", nil), set("message", strings.Repeat("$", longest)), set("image", ownImage, "args", []any{"$(ECHO_TEXT)"}), set("image", nil, "args", nil, "message", "m")},
	}
}

// operations lead an Echo through the values of every field, and of pairs of them.
func operations(_ context.Context, o options) (all []scenario, err error) {
	if err := checkFields(o.root); err != nil {
		return nil, err
	}
	add := func(name string, start map[string]any, changes []change) {
		seed := o.seed + uint64(len(all))
		all = append(all, scenario{name: name, run: func(ctx context.Context, w *world) error {
			return (&walk{world: w, spec: start, inPeace: o.short, seed: seed}).through(ctx, changes)
		}})
	}
	for _, f := range fields() {
		start, changes := f.sequence()
		add(f.path, start, changes)
	}
	together := pairs()
	for _, name := range slices.Sorted(maps.Keys(together)) {
		add(name, map[string]any{"message": "m"}, together[name])
	}
	return all, nil
}

// checkFields compares the fields with those of the CRD.
func checkFields(root string) error {
	file, err := os.ReadFile(filepath.Join(root, "config", "crd", "bases", "kkloud.io_echoes.yaml")) //nolint:gosec // The project's own.
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(file, &crd); err != nil {
		return err
	}
	inSchema, here := sets.Set[string]{}, sets.Set[string]{}
	for _, version := range crd.Spec.Versions {
		addPaths(inSchema, "", version.Schema.OpenAPIV3Schema.Properties["spec"])
	}
	for _, f := range fields() {
		here.Insert(f.path)
	}
	if missing := inSchema.SymmetricDifference(here); missing.Len() > 0 {
		return fmt.Errorf("the CRD and the list of fields differ in %v: each field needs its sequence", sets.List(missing))
	}
	return nil
}

func addPaths(paths sets.Set[string], prefix string, schema apiextensionsv1.JSONSchemaProps) {
	for name, property := range schema.Properties {
		paths.Insert(prefix + name)
		addPaths(paths, prefix+name+".", property)
	}
}

// walk leads the Echo "one" from spec to spec under fire. After each step everything has to
// be as for an Echo that was created so: in peace, a new one is.
type walk struct {
	*world
	spec    map[string]any
	inPeace bool
	seed    uint64
}

func (w *walk) through(ctx context.Context, changes []change) error {
	w.expectedUIDs["Deployment echo-"+one], w.expectedUIDs["Service echo-"+one] = 1, 1
	if err := w.plane.Client.Create(ctx, w.echo(w.fire)); err != nil {
		return err
	}
	if err := w.comparesWithNew(ctx); err != nil {
		return err
	}
	for i, c := range changes {
		if err := w.step(ctx, c); err != nil {
			return fmt.Errorf("step %d, %s: %w", i+1, shortened(c.set), err)
		}
	}
	return w.verify(ctx)
}

func shortened(set map[string]any) string {
	const most = 200
	text := []rune(fmt.Sprint(set))
	return string(text[:min(len(text), most)])
}

func (w *walk) step(ctx context.Context, c change) error {
	before, err := w.children(ctx)
	if err != nil {
		return err
	}
	spec := w.spec
	if w.spec, err = changed(spec, c.set); err != nil {
		return err
	}
	if !w.inPeace {
		w.seed++
		w.proxy.SetPlan(newRandomPlan(w.seed, rand.New(rand.NewPCG(w.seed, 0)))) //nolint:gosec // It has to repeat itself.
		defer w.proxy.SetPlan(nil)
	}
	err = w.replaceSpec(ctx)
	switch {
	case c.refused != "":
		w.spec = spec
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.refused) {
			return fmt.Errorf("the refusal does not name %q: %w", c.refused, orNone(err))
		}
		return errors.Join(w.compare(ctx), w.unchanged(ctx, before))
	case err != nil:
		return err
	case c.rejected != "":
		return errors.Join(w.tells(ctx, convergence, w.fire, echov1.ReasonRejected, c.rejected), w.unchanged(ctx, before))
	}
	if wantsBudget(w.spec) && !wantsBudget(spec) {
		w.expectedUIDs["PodDisruptionBudget echo-"+one]++
	}
	return w.comparesWithNew(ctx)
}

// comparesWithNew compares with an Echo that was created just so.
func (w *walk) comparesWithNew(ctx context.Context) error {
	if err := clear(ctx, w.plane.Client, w.peaceful); err != nil {
		return err
	}
	if err := w.plane.Client.Create(ctx, w.echo(w.peaceful)); err != nil {
		return err
	}
	if w.inPeace {
		return w.settle(ctx)
	}
	pause(ctx, silence)
	w.proxy.SetPlan(nil)
	return errors.Join(w.settle(ctx), w.staysSilent(ctx))
}

var errNone = errors.New("there is none")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func wantsBudget(spec map[string]any) bool {
	replicas, _ := spec["replicas"].(float64)
	return replicas > 1
}

// changed returns a copy of the spec, as JSON has it, with other fields.
func changed(spec, set map[string]any) (map[string]any, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	next := map[string]any{}
	if err := json.Unmarshal(text, &next); err != nil {
		return nil, err
	}
	for path, value := range set {
		parts := strings.Split(path, ".")
		if value == nil {
			unstructured.RemoveNestedField(next, parts...)
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		var plain any
		if err := json.Unmarshal(text, &plain); err != nil {
			return nil, err
		}
		if err := unstructured.SetNestedField(next, plain, parts...); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func (w *walk) echo(namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": echov1.GroupVersion.String(), "kind": "Echo",
		"metadata": map[string]any{"namespace": namespace, "name": one},
		"spec":     w.spec,
	}}
}

// replaceSpec replaces the spec, as `kubectl replace` would.
func (w *walk) replaceSpec(ctx context.Context) error {
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": w.spec}})
	if err != nil {
		return err
	}
	return w.plane.Client.Patch(ctx, w.echo(w.fire), client.RawPatch(types.JSONPatchType, patch))
}

// children returns the generation of the Echo's children by their kind and UID.
func (w *walk) children(ctx context.Context) (map[string]int64, error) {
	all := map[string]int64{}
	for _, list := range kinds()[1:] {
		if err := w.plane.Client.List(ctx, list, client.InNamespace(w.fire)); err != nil {
			return nil, err
		}
		for _, object := range items(list) {
			all[kindOf(object)+" "+string(object.GetUID())] = object.GetGeneration()
		}
	}
	return all, nil
}

// unchanged checks that the specs of the children are what they were.
func (w *walk) unchanged(ctx context.Context, before map[string]int64) error {
	after, err := w.children(ctx)
	if err == nil && !maps.Equal(before, after) {
		err = fmt.Errorf("the children were %v and are %v", before, after)
	}
	return err
}

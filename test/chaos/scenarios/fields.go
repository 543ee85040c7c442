package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// field is a field of the spec, and values for it.
type field struct {
	// path is its path in the spec: page.title.
	path string
	// with has other fields that an Echo needs together with it.
	with map[string]any
	// minimum, maximum and another are valid values; all nil if there is none.
	minimum, maximum, another any
	// invalid are values that the API server rejects.
	invalid []any
	// rejection is part of the API server's message for them, if that is not the path.
	rejection string
	// required is true if the field cannot be unset.
	required bool
}

const longestMessage = 16384

// fields returns all fields of the spec.
func fields() []field {
	custom, page, routed := map[string]any{"image": customImage}, map[string]any{"page": map[string]any{}}, map[string]any{"route": route()}
	half := strings.Repeat("a", 16384) // The longest item, and half of the longest list.
	verified := map[string]any{"verify": map[string]any{}}
	ownServer := map[string]any{"image": customImage, "args": []any{"serve"}}
	return append([]field{
		{path: "message", required: true, minimum: "m", maximum: strings.Repeat("🦜", longestMessage), another: "$(HOME) <b> \"q\"\n\ttwo  lines\r\n",
			invalid: []any{"", strings.Repeat("m", longestMessage+1), "a\x00b", 1}},
		{path: "statusCode", minimum: 200, maximum: 599, another: 503, invalid: []any{0, 199, 600, 503.5, "ok"}},
		{path: "replicas", minimum: 1, maximum: 5, another: 3, invalid: []any{0, 6, -1, 1.5, "two"}},
		{path: "port", minimum: 1, maximum: 65535, another: 8080, invalid: []any{0, 65536, -1, "http"}},
		{path: "targetPort", minimum: 1, maximum: 65535, another: 8080, invalid: []any{0, 65536, -1, "http"}},
		{path: "page", minimum: map[string]any{}, another: map[string]any{"title": "t"},
			maximum: map[string]any{"title": strings.Repeat("&", 253), "color": "#ffffff", "language": "vi"}, invalid: []any{"yes", []any{}}},
		{path: "page.title", with: page, minimum: "", maximum: strings.Repeat("t", 253), another: "</title>", invalid: []any{strings.Repeat("t", 254), 1}},
		{path: "page.language", with: page, minimum: "vi", maximum: "abcdefgh" + strings.Repeat("-a2345678", 3), another: "pt-BR",
			invalid: []any{"", "v", "pt_BR", "abcdefgh" + strings.Repeat("-abcdefgh", 4)}},
		{path: "page.color", with: page, minimum: "#000000", maximum: "#ffffff", another: "#2196f3", invalid: []any{"", "blue", "#12345", "#1234567"}},
		{path: "image", minimum: "a", maximum: strings.Repeat("a", 1024), another: customImage, invalid: []any{"", strings.Repeat("a", 1025), 1}},
		{path: "command", with: custom, minimum: []any{}, maximum: slices.Repeat([]any{"$(ECHO_TEXT)"}, 64), another: []any{"serve"},
			invalid: []any{"serve", []any{1}, slices.Repeat([]any{""}, 65), []any{strings.Repeat("a", 16385)}, []any{half, half, "a"}}},
		{path: "args", with: custom, minimum: []any{}, maximum: slices.Repeat([]any{"$(ECHO_PORT)"}, 64), another: []any{""},
			invalid: []any{"serve", []any{1}, slices.Repeat([]any{""}, 65), []any{strings.Repeat("a", 16385)}, []any{half, half, "a"}}},
		{path: "readinessPath", with: ownServer, minimum: "/", maximum: "/" + strings.Repeat("p", 1023), another: "/healthz?full=1#now",
			invalid: []any{"", "healthz", "/a b", "/é", "/" + strings.Repeat("p", 1024), 1}},
		{path: "resources", minimum: map[string]any{}, another: map[string]any{"requests": map[string]any{"cpu": 1}},
			maximum: map[string]any{"requests": map[string]any{"cpu": "1"}, "limits": map[string]any{"cpu": "128", "memory": "4Ti"}}, invalid: []any{"small", []any{}}},
		{path: "resources.requests", minimum: map[string]any{"cpu": "1n"}, maximum: map[string]any{"cpu": "128", "memory": "4Ti", "ephemeral-storage": "1.5e12"},
			another: map[string]any{"memory": "123456789m"}, invalid: []any{map[string]any{"cpu": "much"}, map[string]any{"cpu": true}}},
		{path: "resources.limits", minimum: map[string]any{"cpu": 0}, maximum: map[string]any{"cpu": "128", "memory": "4Ti", "ephemeral-storage": "1.5e12"},
			another: map[string]any{"cpu": "0.0001"}, invalid: []any{map[string]any{"cpu": "much"}, map[string]any{"cpu": true}}},
		{path: "route", minimum: route(), another: route("hostnames", []any{"*.example.com", "a"}), invalid: []any{map[string]any{}, "yes", []any{}},
			maximum: route("parentRefs", gateways(4), "hostnames", slices.Repeat([]any{strings.Repeat("h", 253)}, 8), "responseHeaders", responseHeaders(16), "scheme", "http",
				"paths", slices.Repeat([]any{map[string]any{"type": "Exact", "value": "/" + strings.Repeat("p", 1023)}}, 8))},
		{path: "route.parentRefs", with: routed, required: true, minimum: gateways(1), maximum: gateways(4), another: []any{map[string]any{"name": "g", "port": 443}},
			invalid: []any{[]any{}, gateways(5), append(gateways(1), gateways(1)...), []any{map[string]any{"name": "G"}}}},
		{path: "route.hostnames", with: routed, minimum: []any{}, maximum: slices.Repeat([]any{strings.Repeat("h", 253)}, 8), another: []any{"*.example.com", "a"},
			invalid: []any{[]any{""}, []any{"A"}, []any{"a:80"}, slices.Repeat([]any{"a"}, 9)}},
		{path: "route.paths", with: routed, minimum: []any{map[string]any{"value": "/"}}, another: []any{map[string]any{"type": "Exact", "value": "/a"}},
			maximum: slices.Repeat([]any{map[string]any{"value": "/" + strings.Repeat("p", 1023)}}, 8),
			invalid: []any{[]any{}, []any{map[string]any{}}, []any{map[string]any{"value": "a"}}, []any{map[string]any{"value": "/../a"}}}},
		{path: "route.responseHeaders", with: routed, minimum: []any{}, maximum: responseHeaders(16), another: []any{map[string]any{"name": "Content-Type", "value": "a/b; c=d"}},
			invalid: []any{responseHeaders(17), []any{map[string]any{"name": "a"}}, []any{map[string]any{"name": "a b", "value": "v"}}, []any{map[string]any{"name": "a", "value": "v\n"}}}},
		{path: "route.scheme", with: routed, minimum: "http", maximum: "https", another: "http", invalid: []any{"", "HTTP", "tcp"}},
		{path: "verify", minimum: map[string]any{}, another: map[string]any{"from": "EveryNode"},
			maximum: map[string]any{"periodSeconds": 300, "timeoutSeconds": 60, "failureThreshold": 10}, invalid: []any{"yes", []any{}}},
		{path: "verify.from", with: verified, minimum: "Cluster", maximum: "EveryNode", another: "Cluster", invalid: []any{"", "cluster", "Node"}},
		{path: "verify.periodSeconds", with: verified, minimum: 2, maximum: 300, another: 30, invalid: []any{0, 301, 1.5, "10s"}},
		{path: "verify.timeoutSeconds", with: verified, minimum: 1, maximum: 10, another: 5, invalid: []any{0, 61, 1.5, "2s"}},
		{path: "verify.failureThreshold", with: verified, minimum: 1, maximum: 10, another: 5, invalid: []any{0, 11, 1.5, "three"}},
		{path: "resources.claims", invalid: []any{[]any{map[string]any{"name": "gpu"}}}, rejection: "spec.resources: Invalid value: claims are not supported"},
	}, podFields()...)
}

// route returns a route with some fields.
func route(pathsAndValues ...any) map[string]any {
	values := map[string]any{"parentRefs": gateways(1)}
	for i := 0; i < len(pathsAndValues); i += 2 {
		values[pathsAndValues[i].(string)] = pathsAndValues[i+1] //nolint:gosec // The number of arguments is even.
	}
	return values
}

// gateways returns so many parentRefs.
func gateways(count int) (refs []any) {
	for i := range count {
		refs = append(refs, map[string]any{"name": fmt.Sprint("g", i)})
	}
	return refs
}

// responseHeaders returns so many headers.
func responseHeaders(count int) (headers []any) {
	for i := range count {
		headers = append(headers, map[string]any{"name": fmt.Sprint("X-", i), "value": strings.Repeat("v", 4096)})
	}
	return headers
}

// change sets fields of the spec, by their path. Nil unsets a field.
type change struct {
	set map[string]any
	// rejection is part of the API server's message if it rejects the change of the Echo.
	rejection string
	// childRejection is part of its message if it accepts the Echo but rejects the Deployment.
	childRejection string
}

// sequence steps through the values of the field, and back.
func (f field) sequence() (start map[string]any, changes []change) {
	start = map[string]any{"message": "m"}
	maps.Copy(start, f.with)
	add := func(value any, rejection string) {
		changes = append(changes, change{set: map[string]any{f.path: value}, rejection: rejection})
	}
	rejection := cmp.Or(f.rejection, "spec."+f.path)
	if f.minimum != nil {
		add(f.minimum, "")
		add(f.maximum, "")
	}
	for _, value := range f.invalid {
		add(value, rejection)
	}
	if f.minimum != nil {
		add(f.another, "")
		add(f.minimum, "")
	}
	if f.required {
		add(nil, rejection)
	} else {
		add(nil, "")
	}
	return start, changes
}

// fieldPairs returns sequences of changes of fields that depend on each other.
func fieldPairs() map[string][]change {
	set := func(pathsAndValues ...any) change {
		c := change{set: map[string]any{}}
		for i := 0; i < len(pathsAndValues); i += 2 {
			c.set[pathsAndValues[i].(string)] = pathsAndValues[i+1] //nolint:gosec // The number of arguments is even.
		}
		return c
	}
	rejected := func(c change, message string) change { c.rejection = message; return c }
	childRejected := func(c change, message string) change { c.childRejection = message; return c }
	const ownCode = "statusCode must be 200 or unset with command or args"
	const needsServer = "readinessPath is for a server of your own: set command or args, too"
	const needsImage = "command and args are for a server of your own: set image, too"
	cpu := func(quantity string) map[string]any { return map[string]any{"cpu": quantity} }
	pairs := map[string][]change{
		"replicas and the PodDisruptionBudget": {set("replicas", 2), set("replicas", 1), set("replicas", 5), set("replicas", nil), set("replicas", 2)},
		"page and args": {
			set("page.title", "<t>"), set("image", customImage, "args", []any{"$(ECHO_TEXT)"}), set("page", nil), set("page.language", "vi"), set("image", nil, "args", nil)},
		"image and command": {
			rejected(set("command", []any{"serve"}), needsImage), set("image", customImage, "command", []any{"serve"}, "args", []any{"-v"}),
			rejected(set("image", nil), needsImage), set("command", nil), rejected(set("image", nil), needsImage), set("args", nil), set("image", nil)},
		"targetPort and port": {set("targetPort", 80), set("port", 5678), set("targetPort", 5678), set("port", 80, "targetPort", 80), set("port", nil, "targetPort", nil)},
		"privileged targetPort": {
			set("targetPort", 1023), set("targetPort", 1024), set("targetPort", 1023, "image", customImage, "args", []any{"$(ECHO_PORT)"}), set("targetPort", nil), set("image", nil, "args", nil)},
		"requests and limits": {
			set("resources.limits", cpu("1")), childRejected(set("resources.requests", cpu("2")), "must be less than or equal to cpu limit"),
			set("resources.limits", cpu("2")), childRejected(set("resources.requests", cpu("-1")), "must be greater than or equal to 0"),
			set("resources.requests", nil), set("resources", nil)},
		"page and the longest message": {
			set("page.title", strings.Repeat("\"", 253), "message", strings.Repeat("&", longestMessage)), set("message", strings.Repeat("🦜", longestMessage)),
			set("page", nil), set("message", strings.Repeat("$", longestMessage)), set("image", customImage, "args", []any{"$(ECHO_TEXT)"}), set("image", nil, "args", nil, "message", "m")},
		"statusCode and args": {
			set("statusCode", 503, "page.title", "t"), rejected(set("image", customImage, "args", []any{"-v"}), ownCode), set("image", customImage, "args", []any{"-v"}, "statusCode", 200),
			rejected(set("statusCode", 204), ownCode), set("statusCode", nil), set("args", nil, "statusCode", 404), set("image", nil, "statusCode", nil)},
		"verify.timeoutSeconds and verify.periodSeconds": {
			set("verify.periodSeconds", 5, "verify.timeoutSeconds", 5), rejected(set("verify.timeoutSeconds", 6), "timeoutSeconds must be at most periodSeconds"),
			set("verify.periodSeconds", 6), set("verify.timeoutSeconds", 6), set("verify", nil)},
		"verify and the server": {
			set("verify.from", "Cluster"), set("image", customImage, "args", []any{"-v"}), set("port", 8080), set("verify.from", "EveryNode"),
			set("image", nil, "args", nil), set("statusCode", 503), set("verify", nil)},
		"readinessPath and args": {
			rejected(set("readinessPath", "/"), needsServer), set("image", customImage, "args", []any{"-v"}), set("readinessPath", "/ready"), set("targetPort", 8080),
			rejected(set("args", nil), needsServer), set("args", nil, "command", []any{"serve"}), set("readinessPath", nil), set("image", nil, "command", nil)},
	}
	maps.Copy(pairs, podPairs(set))
	return pairs
}

// checkFields checks that fields lists exactly the fields of the CRD.
func checkFields(root string) error {
	file, err := os.ReadFile(filepath.Join(root, "config", "crd", "bases", "kkloud.io_echoes.yaml")) //nolint:gosec // A file of the project.
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(file, &crd); err != nil {
		return err
	}
	inSchema, listed := sets.Set[string]{}, sets.Set[string]{}
	for _, version := range crd.Spec.Versions {
		addPaths(inSchema, "", version.Schema.OpenAPIV3Schema.Properties["spec"])
	}
	for _, f := range fields() {
		listed.Insert(f.path)
	}
	if !inSchema.Equal(listed) {
		return fmt.Errorf("fields() in fields.go lacks %v of the CRD; the CRD lacks %v of fields()",
			sets.List(inSchema.Difference(listed)), sets.List(listed.Difference(inSchema)))
	}
	return nil
}

func addPaths(paths sets.Set[string], prefix string, schema apiextensionsv1.JSONSchemaProps) {
	for name, property := range schema.Properties {
		paths.Insert(prefix + name)
		addPaths(paths, prefix+name+".", property)
	}
}

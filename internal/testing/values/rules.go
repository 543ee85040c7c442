package values

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Rule is a validation rule of the CRD (x-kubernetes-validations). Every rule has an entry in Rules.
type Rule struct {
	// Message is how the message of the rule begins. It identifies the rule.
	Message string
	// Violations are Echoes that violate the rule, and Valid ones that just satisfy it: values by path.
	Violations, Valid []map[string]any
	// repair changes a spec so that it satisfies the rule. It does not change the field to keep, as far
	// as another field decides, too. Without it, the generated values satisfy the rule.
	repair func(spec map[string]any, keep string)
}

var (
	long        = strings.Repeat("é", 16384)
	longestName = strings.Repeat("s", 253)
	longestKey  = strings.Repeat("p", 253) + "/" + strings.Repeat("k", 63)
)

// Rules are in the order in which they repair a spec.
var Rules = []Rule{
	{
		Message: "metadata.name becomes a label of the verifier",
		Violations: []map[string]any{
			{"metadata.name": "with.dot"}, {"metadata.name": strings.Repeat("n", 57)}, {"metadata.name": "Upper"},
		},
		Valid: []map[string]any{{"metadata.name": "x"}, {"metadata.name": strings.Repeat("9", 56)}, {"metadata.name": "0-9"}},
	},
	{
		Message:    "message must not contain the NUL character",
		Violations: []map[string]any{{"spec.message": "a\x00b"}},
		Valid:      []map[string]any{{"spec.message": "\x01\t\r\n\x7f"}, {"spec.message": " "}},
		repair: func(spec map[string]any, _ string) {
			if text, found := spec["message"].(string); found {
				spec["message"] = strings.ReplaceAll(text, "\x00", " ")
			}
		},
	},
	{
		Message:    "message is required without image",
		Violations: []map[string]any{{"spec.message": nil}},
		Valid:      []map[string]any{{"spec.message": nil, "spec.image": "i"}},
		repair:     repairServer,
	},
	{
		Message:    "command and args are for your own image: set image, too",
		Violations: []map[string]any{{"spec.command": []any{"/bin/sh"}}, {"spec.args": []any{"-v"}}},
		Valid:      []map[string]any{{"spec.command": []any{}, "spec.args": []any{}}, {"spec.image": "i", "spec.args": []any{"-v"}}},
	},
	{
		Message:    "readinessPath is for your own image: set image, too",
		Violations: []map[string]any{{"spec.readinessPath": "/"}},
		Valid:      []map[string]any{{"spec.readinessPath": "/", "spec.image": "i"}},
	},
	{
		Message:    "statusCode must be unset with image",
		Violations: []map[string]any{{"spec.image": "i", "spec.statusCode": int64(200)}},
	},
	{
		Message:    "headers must be empty or unset with image",
		Violations: []map[string]any{{"spec.image": "i", "spec.headers": headerList("A", "v")}},
		Valid:      []map[string]any{{"spec.image": "i", "spec.headers": []any{}}},
	},
	{
		Message:    "page must be unset with image",
		Violations: []map[string]any{{"spec.image": "i", "spec.page": map[string]any{}}},
	},
	{
		Message:    "statusCode must not be 206 or 426",
		Violations: []map[string]any{{"spec.statusCode": int64(206)}, {"spec.statusCode": int64(426)}},
		Valid:      []map[string]any{{"spec.statusCode": int64(205)}, {"spec.statusCode": int64(207)}, {"spec.statusCode": int64(425)}, {"spec.statusCode": int64(427)}},
		repair: func(spec map[string]any, _ string) {
			if code := spec["statusCode"]; code == int64(206) || code == int64(426) {
				spec["statusCode"] = int64(200)
			}
		},
	},
	requiredHeader("statusCode 301, 302, 303, 307 or 308 requires the header Location: add it to headers", "Location", "/", 301, 302, 303, 307, 308),
	requiredHeader("statusCode 401 requires the header WWW-Authenticate: add it to headers", "WWW-Authenticate", "Basic", 401),
	requiredHeader("statusCode 405 requires the header Allow: add it to headers", "Allow", "GET", 405),
	requiredHeader("statusCode 407 requires the header Proxy-Authenticate: add it to headers", "Proxy-Authenticate", "Basic", 407),
	{
		Message: "headers must not repeat a name: names are case-insensitive",
		Violations: []map[string]any{
			{"spec.headers": headerList("A", "v", "a", "v")}, {"spec.headers": headerList("Set-Cookie", "a=b", "X", "v", "set-cookie", "c=d")},
		},
		Valid: []map[string]any{{"spec.headers": headerList("A", "v", "A-", "v", "!#$%&'*+-.^_`|~0", "v")}},
	},
	{
		Message: "the server sets Connection, Content-Length, Date, Keep-Alive, Trailer, Transfer-Encoding and Upgrade itself",
		Violations: []map[string]any{
			{"spec.headers": headerList("Connection", "close")}, {"spec.headers": headerList("content-length", "0")}, {"spec.headers": headerList("DATE", "v")},
			{"spec.headers": headerList("Keep-Alive", "v")}, {"spec.headers": headerList("Trailer", "v")},
			{"spec.headers": headerList("Transfer-Encoding", "chunked")}, {"spec.headers": headerList("A", "v", "Upgrade", "h2c")},
		},
		Valid: []map[string]any{{"spec.headers": headerList("Proxy-Connection", "v", "Content-Length-", "v", "Expires", "0")}},
	},
	limitOfList("command"),
	limitOfList("args"),
	{
		// Some texts that the pattern of quantities allows do not decode, or take seconds: one such Echo would stop the watch of all.
		Message: "a quantity has at most 20 characters and no exponent: write 129M, not 129e6",
		Violations: []map[string]any{
			{"spec.resources.limits": map[string]any{"cpu": "1e1.5"}}, {"spec.resources.requests": map[string]any{"cpu": "1E-9999999"}},
			{"spec.resources.limits": map[string]any{"cpu": "1", "memory": "1E3"}}, {"spec.resources.requests": map[string]any{"memory": strings.Repeat("1", 21)}},
			{"spec.verify.resources.limits": map[string]any{"cpu": "1e1.5"}}, {"spec.verify.resources.requests": map[string]any{"cpu": "1E-9999999"}},
		},
		Valid: []map[string]any{{"spec.resources.limits": map[string]any{"a": "1E", "b": "1Ei", "c": int64(1 << 62), "d": strings.Repeat("1", 18) + "Mi"}}},
	},
	{
		Message: "the name of a resource has at most 317 characters",
		Violations: []map[string]any{
			{"spec.resources.limits": map[string]any{longestKey + "k": "1"}}, {"spec.resources.requests": map[string]any{longestKey + "k": "1"}},
			{"spec.verify.resources.limits": map[string]any{longestKey + "k": "1"}},
		},
		Valid: []map[string]any{{"spec.resources.requests": map[string]any{longestKey: "1"}}},
	},
	{
		Message: "parentRefs that name the same Gateway must each have a sectionName of their own",
		Violations: []map[string]any{
			{"spec.route.parentRefs": []any{gateway("a", ""), gateway("a", "")}},
			{"spec.route.parentRefs": []any{gateway("a", ""), gateway("a", "s")}},
		},
		Valid: []map[string]any{{"spec.route.parentRefs": []any{gateway("a", "r"), gateway("a", "s"), gateway("b", "")}}},
		repair: func(spec map[string]any, _ string) {
			refs, _, _ := unstructured.NestedFieldNoCopy(spec, "route", "parentRefs")
			if list, isList := refs.([]any); isList {
				makeDistinct(list, "name")
			}
		},
	},
	{
		Message:    "parentRefs must be set without overrides",
		Violations: []map[string]any{{"spec.route": map[string]any{"scheme": "https"}}},
		Valid:      []map[string]any{{"spec.route": map[string]any{"overrides": []any{map[string]any{"name": "shop"}}}}},
	},
	{
		Message: "parentRefs, hostnames and paths must not be set with overrides",
		Violations: []map[string]any{
			{"spec.route": map[string]any{"overrides": []any{map[string]any{"name": "shop"}}, "parentRefs": []any{gateway("a", "")}}},
			{"spec.route": map[string]any{"overrides": []any{map[string]any{"name": "shop"}}, "hostnames": []any{"a"}}},
			{"spec.route": map[string]any{"overrides": []any{map[string]any{"name": "shop"}}, "paths": pathList("/a")}},
			{"spec.route": map[string]any{"overrides": []any{map[string]any{"name": "shop"}}, "paths": []any{map[string]any{"value": "/", "type": "Exact"}}}},
		},
		Valid:  []map[string]any{{"spec.route": map[string]any{"overrides": []any{map[string]any{"name": "shop"}, map[string]any{"name": "api"}}, "paths": pathList("/")}}},
		repair: repairRoute,
	},
	{
		Message: "value of a path must not contain //",
		Violations: []map[string]any{
			{"spec.route.paths": pathList("/a//b")}, {"spec.route.paths": pathList("/a/./b")},
			{"spec.route.paths": pathList("/a/..")}, {"spec.route.paths": pathList("/a%2Fb")},
		},
		Valid: []map[string]any{{"spec.route.paths": pathList("/-A9._~!$&'()*+,;=:@%2a/.well-known/..a/")}},
		repair: func(spec map[string]any, _ string) {
			paths, _, _ := unstructured.NestedFieldNoCopy(spec, "route", "paths")
			list, _ := paths.([]any)
			for _, item := range list {
				if value, _ := item.(map[string]any)["value"].(string); invalidPath.MatchString(value) {
					item.(map[string]any)["value"] = "/docs"
				}
			}
		},
	},
	{
		Message:    "timeoutSeconds must be at most periodSeconds",
		Violations: []map[string]any{{"spec.verify.timeoutSeconds": int64(11)}, {"spec.verify.periodSeconds": int64(1)}},
		Valid:      []map[string]any{{"spec.verify.periodSeconds": int64(5), "spec.verify.timeoutSeconds": int64(5)}},
		repair:     repairTimeout,
	},
	invalidKey("nodeSelector"),
	{
		Message:    "kubernetes.io/os must be linux or unset",
		Violations: []map[string]any{{"spec.pod.nodeSelector": map[string]any{"kubernetes.io/os": "windows"}}},
		repair: func(spec map[string]any, _ string) {
			if selector := mapIn(spec, "pod", "nodeSelector"); selector["kubernetes.io/os"] != nil {
				selector["kubernetes.io/os"] = "linux"
			}
		},
	},
	toleration("a toleration has a key of at most 317 characters",
		map[string]any{"key": strings.Repeat("k", 318)}, map[string]any{"key": "k", "value": strings.Repeat("v", 64)}),
	toleration("the operator of a toleration is Equal, Exists, Lt or Gt", map[string]any{"key": "k", "operator": "Is"}),
	toleration("the effect of a toleration is NoSchedule, PreferNoSchedule or NoExecute", map[string]any{"key": "k", "effect": "Never"}),
	toleration("a toleration without a key has the operator Exists", map[string]any{"operator": "Equal"}, map[string]any{}),
	toleration("a toleration with the operator Exists has no value", map[string]any{"key": "k", "operator": "Exists", "value": "v"}),
	toleration("a toleration with tolerationSeconds has the effect NoExecute", map[string]any{"key": "k", "tolerationSeconds": int64(5)}),
	invalidKey("labels"),
	reservedKey("labels", []string{"kkloud.io/echo", "app.kubernetes.io/name", "app.kubernetes.io/managed-by", "pod-template-hash", "controller-revision-hash"},
		"app.kubernetes.io/part-of", "x.kkloud.io/k", "topology.kubernetes.io/zone"),
	invalidKey("annotations"),
	reservedKey("annotations", []string{
		"kkloud.io/k", "deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation", "kubectl.kubernetes.io/last-applied-configuration",
		"container.apparmor.security.beta.kubernetes.io/echo",
	}, "k8s.io/k", "cluster-autoscaler.kubernetes.io/safe-to-evict", "service.beta.kubernetes.io/aws-load-balancer-type"),
	{
		Message: "annotations must have values of at most 4,096 characters in total",
		Violations: []map[string]any{
			{"spec.pod.annotations": map[string]any{"a": strings.Repeat("v", 2048), "b": strings.Repeat("v", 2049)}},
			{"spec.inheritedMetadata.annotations": map[string]any{"a": strings.Repeat("v", 2048), "b": strings.Repeat("v", 2049)}},
		},
		Valid: []map[string]any{{"spec.pod.annotations": map[string]any{"a": strings.Repeat("😀", 4096), "b": ""}}},
		repair: func(spec map[string]any, _ string) {
			for _, parent := range metadataParents {
				annotations := mapIn(spec, parent, "annotations")
				for key, value := range annotations {
					annotations[key] = shortened(value, 4096/len(annotations))
				}
			}
		},
	},
	{
		Message:    "layers must have DNS or Service, too, without a route whose first hostname is known",
		Violations: []map[string]any{{"spec.verify.layers": []any{"Route"}}, {"spec.verify.layers": []any{"Route"}, "spec.route.hostnames": []any{"*.example.com"}}},
		Valid: []map[string]any{
			{"spec.verify.layers": []any{"Route", "DNS"}},
			{"spec.verify.layers": []any{"Route"}, "spec.route.parentRefs": []any{gateway("a", "")}, "spec.route.hostnames": []any{"a"}},
		},
		repair: func(spec map[string]any, _ string) {
			verify, _ := spec["verify"].(map[string]any)
			if layers, _ := verify["layers"].([]any); len(layers) == 1 && layers[0] == "Route" {
				verify["layers"] = append(layers, "DNS")
			}
		},
	},
}

// choices are the valid values of fields for which a type is no guide, by path: the minimum, another, further
// ones, and the maximum. An asterisk stands for the items of a list and the entries of a map.
var choices = map[string][]any{
	"image": {
		"a", "docker.io/library/nginx:1.29", "registry.example:5000/a/b@sha256:" + strings.Repeat("0", 64), "NOT//an::image", "$(HOME)", "😀",
		" outer space ", strings.Repeat("i", 1024),
	},
	"headers.*.name":                      {"a", "Content-Type", "Location", "content-type", "WWW-Authenticate", "Set-Cookie", "!#$%&'*+-.^_`|~", strings.Repeat("h", 63)},
	"headers.*.value":                     {"!", "text/html; charset=utf-8", "$(HOME) $$", "https://example.com/?a=$(ECHO_TEXT)", `"<>\~`, strings.Repeat("v", 1024)},
	"route.hostnames.*":                   {"a", "status.example.com", "*.example.com", "1.2.3.4", strings.Repeat("h", 253)},
	"resources.limits.*":                  quantities,
	"resources.requests.*":                quantities,
	"verify.resources.limits.*":           quantities,
	"verify.resources.requests.*":         quantities,
	"pod.priorityClassName":               {"system-node-critical", "system-cluster-critical"},
	"pod.imagePullSecrets.*.name":         {"a", "mirror", "0", "a.b-c", longestName},
	"pod.tolerations.*.key":               {"k", "example.com/pool", "a", "b", "outer space", "a/b/c", longestKey},
	"pod.tolerations.*.operator":          {"Exists", "Equal", "", "Equal"},
	"pod.tolerations.*.value":             {"", "canary", strings.Repeat("v", 63)},
	"pod.tolerations.*.effect":            {"", "NoExecute", "PreferNoSchedule", "NoExecute"},
	"pod.tolerations.*.tolerationSeconds": {int64(0), int64(60), int64(-1), int64(1 << 62), int64(3600)},
}

// These are quantities, many of them invalid for a pod. The pattern of the schema also allows texts that a rule rejects.
var quantities = []any{int64(0), "64Mi", "0.0105", "100500u", "-1", "10m", "1k", "1500M", "1.5Gi", "9223372036854775807", "4Ti"}

// isResources reports whether the path is that of a map of quantities: of the server or of the verifier.
func isResources(path string) bool { return strings.Contains(path, "resources.") }

// keys returns keys of a map. The first are also those of the smallest maps.
func keys(path string) []string {
	if isResources(path) {
		return []string{"cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "nonsense"}
	}
	return []string{"example.com/pool", "a", "b", "c", "d", "http", "tmp", "kubernetes.io/os", longestKey}
}

// repair changes a spec so that it satisfies every rule.
func repair(spec map[string]any, keep string) {
	for _, rule := range Rules {
		if rule.repair != nil {
			rule.repair(spec, keep)
		}
	}
}

// The fields that only the default server has, and those that only an own image has.
var defaultServerFields, imageFields = []string{"statusCode", "headers", "page"}, []string{"command", "args", "readinessPath"}

// repairServer removes the fields of the other server, and adds the image or the message that the server requires.
func repairServer(spec map[string]any, keep string) {
	keep, _, _ = strings.Cut(keep, ".")
	surplus := append([]string{"image"}, imageFields...)
	isImageField := slices.Contains(imageFields, keep)
	if isImageField && spec["image"] == nil {
		spec["image"] = choices["image"][0]
	}
	if spec["image"] != nil && !slices.Contains(defaultServerFields, keep) {
		surplus = defaultServerFields
	}
	for _, field := range surplus {
		delete(spec, field)
	}
	if spec["image"] == nil && spec["message"] == nil {
		spec["message"] = "m"
	}
}

// repairRoute removes the fields that exclude each other, and adds the Gateway that a route without overrides requires.
func repairRoute(spec map[string]any, keep string) {
	route, isRouted := spec["route"].(map[string]any)
	surplus := []string{"overrides"}
	if strings.HasPrefix(keep, "route.overrides") {
		surplus = []string{"parentRefs", "hostnames", "paths"}
	} else if isRouted && route["parentRefs"] == nil {
		route["parentRefs"] = []any{gateway("a", "")}
	}
	for _, field := range surplus {
		delete(route, field)
	}
}

// shortened returns the text if it has at most so many characters, or its beginning.
func shortened(text any, limit int) string {
	runes := []rune(fmt.Sprint(text))
	return string(runes[:min(len(runes), limit)])
}

// headerList returns headers with these names and values.
func headerList(namesAndValues ...string) (all []any) {
	for i := 0; i < len(namesAndValues); i += 2 {
		all = append(all, map[string]any{"name": namesAndValues[i], "value": namesAndValues[i+1]}) //nolint:gosec // The number of arguments is even.
	}
	return all
}

// requiredHeader is the rule that some status codes require a header.
func requiredHeader(message, name, value string, codes ...int64) Rule {
	rule := Rule{Message: message}
	for _, code := range codes {
		rule.Violations = append(rule.Violations, map[string]any{"spec.statusCode": code},
			map[string]any{"spec.statusCode": code, "spec.headers": headerList("X-"+name, value)})
		rule.Valid = append(rule.Valid, map[string]any{"spec.statusCode": code, "spec.headers": headerList(strings.ToUpper(name), value)})
	}
	rule.Valid = append(rule.Valid, map[string]any{"spec.statusCode": codes[0] - 1}, map[string]any{"spec.statusCode": codes[len(codes)-1] + 1})
	rule.repair = func(spec map[string]any, _ string) {
		code, _ := spec["statusCode"].(int64)
		headers, _ := spec["headers"].([]any)
		isNamed := func(header any) bool { return strings.EqualFold(header.(map[string]any)["name"].(string), name) }
		switch {
		case !slices.Contains(codes, code) || slices.ContainsFunc(headers, isNamed):
		case len(headers) == 0:
			spec["headers"] = headerList(name, value)
		default:
			headers[0].(map[string]any)["name"] = name
		}
	}
	return rule
}

// limitOfList is the rule that limits all items of a list together.
func limitOfList(name string) Rule {
	return Rule{
		Message:    name + " must have at most 32,768 characters in total",
		Violations: []map[string]any{{"spec.image": "i", "spec." + name: []any{long, long, "a"}}},
		Valid:      []map[string]any{{"spec.image": "i", "spec." + name: []any{long, long, ""}}},
		repair: func(spec map[string]any, _ string) {
			items, _ := spec[name].([]any)
			for i, item := range items {
				items[i] = shortened(item, 32768/len(items))
			}
		},
	}
}

var invalidPath = regexp.MustCompile(`//|/[.][.]?(/|$)|%2[fF]`)

func pathList(value string) []any { return []any{map[string]any{"value": value}} }

func gateway(name, section string) map[string]any {
	if section == "" {
		return map[string]any{"name": name}
	}
	return map[string]any{"name": name, "sectionName": section}
}

// repairTimeout changes the period unless that is the field to keep.
func repairTimeout(spec map[string]any, keep string) {
	verify, isObject := spec["verify"].(map[string]any)
	if !isObject {
		return
	}
	period, hasPeriod := verify["periodSeconds"].(int64)
	timeout, hasTimeout := verify["timeoutSeconds"].(int64)
	if !hasPeriod {
		period = 10
	}
	if !hasTimeout {
		timeout = 2
	}
	switch {
	case timeout <= period:
	case keep == "verify.periodSeconds":
		verify["timeoutSeconds"] = period
	default:
		verify["periodSeconds"] = timeout
	}
}

// metadataParents are the fields with labels and annotations.
var metadataParents = []string{"pod", "inheritedMetadata"}

// mapIn returns a map in a field.
func mapIn(spec map[string]any, parent, name string) map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(spec, parent, name)
	entries, _ := value.(map[string]any)
	return entries
}

func invalidKey(field string) Rule {
	rule := Rule{Message: field + " has an invalid key"}
	for _, key := range []string{"", "Example.com/k", "a/b/c", "-", strings.Repeat("p", 254) + "/k", strings.Repeat("k", 64)} {
		rule.Violations = append(rule.Violations, map[string]any{"spec.pod." + field: map[string]any{key: "v"}})
	}
	return rule
}

func reservedKey(field string, reserved []string, allowed ...string) Rule {
	rule := Rule{Message: field + " has a key that is reserved"}
	for _, parent := range metadataParents {
		for _, key := range reserved {
			rule.Violations = append(rule.Violations, map[string]any{"spec." + parent + "." + field: map[string]any{key: "v"}})
		}
		for _, key := range allowed {
			rule.Valid = append(rule.Valid, map[string]any{"spec." + parent + "." + field: map[string]any{key: "v"}})
		}
	}
	return rule
}

// toleration is a rule that the tolerations violate.
func toleration(message string, tolerations ...any) Rule {
	rule := Rule{Message: message, repair: repairTolerations}
	for _, toleration := range tolerations {
		rule.Violations = append(rule.Violations, map[string]any{"spec.pod.tolerations": []any{toleration}})
	}
	return rule
}

// repairTolerations repairs combinations. The single values are choices.
func repairTolerations(spec map[string]any, _ string) {
	value, _, _ := unstructured.NestedFieldNoCopy(spec, "pod", "tolerations")
	list, _ := value.([]any)
	for _, item := range list {
		toleration := item.(map[string]any)
		if key, _ := toleration["key"].(string); key == "" {
			toleration["operator"] = "Exists"
		}
		if toleration["operator"] == "Exists" {
			delete(toleration, "value")
		}
		if toleration["tolerationSeconds"] != nil {
			toleration["effect"] = "NoExecute"
		}
	}
}

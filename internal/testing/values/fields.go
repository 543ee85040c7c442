package values

import (
	"fmt"
	"maps"
	"strings"
)

type values = []any

// entry has values for a field: valid ones, of which the first is the smallest, and invalid ones, which include nil if
// the field is required. The items of a list may have entries, for the first one, and those of a map, for any key.
type entry struct {
	path           string // In the spec.
	valid, invalid values
	with           object // Other fields, without which the values are invalid.
}

// changes returns the changes that set the field.
func (e entry) changes(value any) object {
	changes := object{"spec." + e.path: value}
	maps.Copy(changes, e.with)
	return changes
}

// freeTexts are the fields that may have any text.
var freeTexts = []string{"message", "page.title", "image", "args[0]", "command[0]", "pod.annotations.k", "inheritedMetadata.annotations.k"}

const markup = "costs $5 & <b>\"$(HOME)\"</b>\n  é"

var (
	rep         = strings.Repeat
	customImage = object{"spec.image": "i"}
	noParents   = object{"spec.route.parentRefs": nil}
	longText    = rep("🦜", 16384)
	longestName = rep("s", 253)
	longestKey  = rep("p", 253) + "/" + rep("k", 63)
	enumErrors  = values{"unknown", ""}

	arguments = values{values{}, list(64, func(int) any { return rep("c", 512) }), values{longText, longText, ""}, values{"-c", markup}}
	// argumentErrors have too many items, or too many characters in total.
	argumentErrors = values{list(65, func(int) any { return "" }), values{longText, longText, "a"}}

	// quantities are valid for an Echo, but many of them not for a pod.
	quantities     = values{0, "64Mi", "0.0105", "100500u", "-1", "1k", "1E", "1Ei", 1 << 62, "9223372036854775807", rep("1", 18) + "Mi", "10m"}
	resources      = values{object{}, object{longestKey: "1"}, entries(8), object{"cpu": 1, "memory": "64Mi"}}
	resourceErrors = values{entries(9), object{longestKey + "k": "1"}}
	// quantityErrors include texts that do not decode, or that take seconds: one such Echo would stop the watch of all.
	quantityErrors = values{"", "1 Gi", "é", "1e1.5", "1E-9999999", "1E3", rep("1", 21)}

	keyErrors = values{
		entries(17), object{"": "v"}, object{"Example.com/k": "v"}, object{"a/b/c": "v"}, object{"-": "v"}, object{rep("p", 254) + "/k": "v"}, object{rep("k", 64): "v"},
	}
	labels = values{
		object{}, object{longestKey: "v"}, entries(16), object{"app.kubernetes.io/part-of": "v", "x.kkloud.io/k": "v", "topology.kubernetes.io/zone": "v"},
	}
	labelErrors = append(keyErrors, object{"kkloud.io/echo": "v"}, object{"app.kubernetes.io/name": "v"},
		object{"app.kubernetes.io/managed-by": "v"}, object{"pod-template-hash": "v"}, object{"controller-revision-hash": "v"})
	labelValues      = values{"", rep("v", 63), "A_b.c-9"}
	labelValueErrors = values{"-v", "v-", "a b", "a\nb", rep("v", 64)}
	annotations      = values{
		object{}, object{longestKey: "v"}, object{"a": rep("😀", 4096), "b": ""},
		entries(16), object{"k8s.io/k": "v", "cluster-autoscaler.kubernetes.io/safe-to-evict": "v", "service.beta.kubernetes.io/aws-load-balancer-type": "v"},
	}
	annotationErrors = append(keyErrors, object{"a": rep("v", 2048), "b": rep("v", 2049)}, object{"kkloud.io/k": "v"},
		object{"deployment.kubernetes.io/revision": "v"}, object{"deprecated.daemonset.template.generation": "v"},
		object{"kubectl.kubernetes.io/last-applied-configuration": "v"}, object{"container.apparmor.security.beta.kubernetes.io/echo": "v"})
)

// fields has every field of the spec. Parents precede their fields.
var fields = []entry{
	{path: "message", valid: values{"m", longText, "\x01\t\r\n\x7f", " ", markup}, invalid: values{nil, "", rep("é", 16385), "a\x00b"}},
	{path: "replicas", valid: values{1, 5, 3}, invalid: values{0, 6}},
	{path: "port", valid: values{1, 65535, 80, 8080}, invalid: values{0, 65536}},
	{path: "targetPort", valid: values{1, 65535, 1023, 1024}, invalid: values{0, 65536}},
	{path: "statusCode", valid: values{200, 204, 205, 207, 300, 304, 306, 309, 400, 402, 404, 406, 408, 425, 427, 599},
		invalid: values{199, 600, 206, 426, 301, 302, 303, 307, 308, 401, 405, 407}},
	{path: "headers", valid: values{
		headers("a", "!"), values{}, list(16, func(i int) any { return object{"name": fmt.Sprintf("h%062d", i), "value": rep("v", 1024)} }),
		headers("A", "v", "A-", "v", "Proxy-Connection", "v", "Content-Length-", "v", "Expires", "0"),
		headers("Content-Type", "text/html; charset=utf-8", "Location", "https://example.com/?a=$(ECHO_TEXT)", "WWW-Authenticate", `Basic realm="a"`),
	}, invalid: values{
		list(17, func(i int) any { return object{"name": fmt.Sprint("a", i), "value": "v"} }), headers("a", "v", "a", "v"), headers("A", "v", "a", "v"),
		headers("Set-Cookie", "a=b", "X", "v", "set-cookie", "c=d"), values{"text"},
	}},
	{path: "headers[0].name", valid: values{"a", "content-type", "!#$%&'*+-.^_`|~0", rep("h", 63), "Set-Cookie"}, invalid: values{
		nil, "", "a b", "a:", "a\nb", "é", rep("h", 64), "Connection", "content-length", "DATE", "Keep-Alive", "Trailer", "Transfer-Encoding", "Upgrade",
	}},
	{path: "headers[0].value", valid: values{"!", `"<>\~`, rep("v", 1024), "$(HOME) $$"}, invalid: values{nil, "", " v", "v ", "a\nb", "é", rep("v", 1025)}},
	{path: "page", valid: values{object{}}},
	{path: "page.color", valid: values{"#000000", "#fFaA09"}, invalid: values{"", "#00000", "#0000000", "red", "#00000\n"}},
	{path: "page.language", valid: values{"aa", "aaaaaaaa-bbbbbbbb-cccccccc-dddddddd", "pt-BR"}, invalid: values{"a", "pt_BR", "aa-", "aa\n", rep("aaaaa-", 5) + "aaaaaa"}},
	{path: "page.title", valid: values{"a", rep("🦜", 253), markup}, invalid: values{"", rep("é", 254)}},
	{path: "image", valid: values{
		"a", "docker.io/library/nginx:1.29", "registry.example:5000/a/b@sha256:" + rep("0", 64), "NOT//an::image", "$(HOME)", " outer space ", rep("i", 1024),
	}, invalid: values{"", rep("i", 1025)}},
	{path: "command", with: customImage, valid: arguments, invalid: argumentErrors},
	{path: "command[0]", with: customImage, valid: values{"", longText, markup}, invalid: values{rep("é", 16385)}},
	{path: "args", with: customImage, valid: arguments, invalid: argumentErrors},
	{path: "args[0]", with: customImage, valid: values{"", longText, markup}, invalid: values{rep("é", 16385)}},
	{path: "readinessPath", with: customImage, valid: values{"/", "/" + rep("p", 1023), "/healthz?a=b"}, invalid: values{"", "p", "/ ", "/\n", "/é", "/" + rep("p", 1024)}},

	{path: "inheritedMetadata", valid: values{object{}}},
	{path: "inheritedMetadata.annotations", valid: annotations, invalid: annotationErrors},
	{path: "inheritedMetadata.annotations.k", valid: values{"", longText[:4*4096], markup}, invalid: values{rep("é", 4097)}},
	{path: "inheritedMetadata.labels", valid: labels, invalid: labelErrors},
	{path: "inheritedMetadata.labels.k", valid: labelValues, invalid: labelValueErrors},

	{path: "pod", valid: values{object{}}},
	{path: "pod.annotations", valid: annotations, invalid: annotationErrors},
	{path: "pod.annotations.k", valid: values{"", longText[:4*4096], markup}, invalid: values{rep("é", 4097)}},
	{path: "pod.labels", valid: labels, invalid: labelErrors},
	{path: "pod.labels.k", valid: labelValues, invalid: labelValueErrors},
	{path: "pod.nodeSelector", valid: append(labels, object{"kubernetes.io/os": "linux", "a": "b"}), invalid: append(keyErrors, object{"kubernetes.io/os": "windows"})},
	{path: "pod.nodeSelector.k", valid: labelValues, invalid: labelValueErrors},
	{path: "pod.imagePullSecrets", valid: values{list(1, named), values{}, list(4, named)}, invalid: values{list(5, named), values{named(1), named(1)}}},
	{path: "pod.imagePullSecrets[0].name", valid: values{"a", longestName, "a.b-c"}, invalid: append(nameErrors(253), nil)},
	{path: "pod.priorityClassName", valid: values{"system-node-critical", "system-cluster-critical"}, invalid: nameErrors(253)},
	{path: "pod.runAsUser", valid: values{1, 2147483647, 1000}, invalid: values{0, 2147483648}},
	{path: "pod.tolerations", valid: values{
		values{object{"key": "k"}}, values{}, values{object{"operator": "Exists"}}, list(16, func(i int) any { return object{"key": fmt.Sprint("k", i)} }),
		values{object{"key": "a", "operator": "Equal", "value": "canary", "effect": "NoSchedule"}, object{"key": "b", "operator": "Exists", "effect": "NoExecute"}},
	}, invalid: values{
		list(17, func(i int) any { return object{"key": fmt.Sprint("k", i)} }), values{object{"operator": "Equal"}}, values{object{}},
		values{object{"key": "k", "operator": "Exists", "value": "v"}}, values{object{"key": "k", "tolerationSeconds": 5}},
	}},
	{path: "pod.tolerations[0].key", valid: values{"k", "outer space", "a/b/c", longestKey, "example.com/pool"}, invalid: values{nil, rep("k", 318)}},
	{path: "pod.tolerations[0].value", valid: values{"", rep("v", 63), "canary"}, invalid: values{rep("v", 64)}},
	{path: "pod.tolerations[0].operator", valid: values{"", "Exists", "Equal"}, invalid: values{"Is"}},
	{path: "pod.tolerations[0].effect", with: object{"spec.pod.tolerations[0].tolerationSeconds": nil}, valid: values{"", "PreferNoSchedule", "NoExecute"}, invalid: values{"Never"}},
	{path: "pod.tolerations[0].tolerationSeconds", with: object{"spec.pod.tolerations[0].effect": "NoExecute"}, valid: values{0, -1, 1 << 62, 3600}},

	{path: "resources", valid: values{object{}}},
	{path: "resources.limits", valid: resources, invalid: resourceErrors},
	{path: "resources.limits.cpu", valid: quantities, invalid: quantityErrors},
	{path: "resources.requests", valid: resources, invalid: resourceErrors},
	{path: "resources.requests.memory", valid: quantities, invalid: quantityErrors},
	{path: "service", valid: values{object{}}},
	{path: "service.type", valid: values{"ClusterIP", "LoadBalancer", "NodePort"}, invalid: enumErrors},

	{path: "route", valid: values{object{"parentRefs": list(1, named)}}},
	{path: "route.parentRefs", valid: values{list(1, named), list(4, named), values{gateway("r"), gateway("s"), named(1)}},
		invalid: values{nil, values{}, list(5, named), values{named(0), named(0)}, values{named(0), gateway("s")}}},
	{path: "route.parentRefs[0].name", valid: values{"a", longestName, "public"}, invalid: append(nameErrors(253), nil)},
	{path: "route.parentRefs[0].namespace", valid: values{"a", rep("n", 63), "infra"}, invalid: append(nameErrors(63), "a.b")},
	{path: "route.parentRefs[0].port", valid: values{1, 65535, 443}, invalid: values{0, 65536}},
	{path: "route.parentRefs[0].sectionName", valid: values{"a", longestName, "https"}, invalid: nameErrors(253)},
	{path: "route.hostnames", valid: values{values{}, list(8, text)}, invalid: values{list(9, text)}},
	{path: "route.hostnames[0]", valid: values{"a", "*.example.com", "1.2.3.4", longestName, "status.example.com"}, invalid: append(nameErrors(253), "*", "a.*.b")},
	{path: "route.paths", valid: values{list(1, path), list(8, path), list(2, path)}, invalid: values{values{}, list(9, path)}},
	{path: "route.paths[0].value", valid: values{"/", "/" + rep("p", 1023), "/-A9._~!$&'()*+,;=:@%2a/.well-known/..a/"},
		invalid: values{nil, "", "p", "/a b", "/%2", "/?a", "/\n", "/" + rep("p", 1024), "/a//b", "/a/./b", "/a/..", "/a%2Fb"}},
	{path: "route.paths[0].type", valid: values{"PathPrefix", "Exact"}, invalid: enumErrors},
	{path: "route.scheme", valid: values{"https", "http"}, invalid: enumErrors},
	{path: "route.overrides", with: noParents, valid: values{list(1, named), list(8, named)}, invalid: values{values{}, list(9, named), values{named(1), named(1)}}},
	{path: "route.overrides[0].name", with: noParents, valid: values{"a", longestName, "shop"}, invalid: append(nameErrors(253), nil)},

	{path: "verify", valid: values{object{}}},
	{path: "verify.from", valid: values{"Cluster", "EveryNode"}, invalid: enumErrors},
	{path: "verify.layers", valid: values{values{"DNS"}, values{"Service", "DNS"}, values{"Service"}, values{"Route", "DNS"}, values{"DNS", "Service", "Route"}},
		invalid: values{values{}, values{"DNS", "DNS"}, values{"DNS", "Service", "Route", "DNS"}, values{"Route"}, values{"unknown"}, values{1}}},
	{path: "verify.failureThreshold", valid: values{1, 10, 5}, invalid: values{0, 11}},
	// The default of timeoutSeconds is 2, and that of periodSeconds is 10.
	{path: "verify.periodSeconds", valid: values{2, 300, 30}, invalid: values{0, 1, 301}},
	{path: "verify.timeoutSeconds", valid: values{1, 10, 5}, invalid: values{0, 11, 61}},
	{path: "verify.resources", valid: values{object{}}},
	{path: "verify.resources.limits", valid: resources, invalid: resourceErrors},
	{path: "verify.resources.limits.memory", valid: quantities, invalid: quantityErrors},
	{path: "verify.resources.requests", valid: resources, invalid: resourceErrors},
	{path: "verify.resources.requests.cpu", valid: quantities, invalid: quantityErrors},
}

// validCombinations and invalidCombinations are changes of several fields, or of the metadata.
var (
	validCombinations = []object{
		{"metadata.name": "x"}, {"metadata.name": rep("9", 56)}, {"metadata.name": "0-9"},
		{"spec.message": nil, "spec.image": "i"}, {"spec.image": "i", "spec.headers": values{}}, {"spec.command": values{}, "spec.args": values{}},
		{"spec.verify.periodSeconds": 1, "spec.verify.timeoutSeconds": 1}, {"spec.verify.periodSeconds": 60, "spec.verify.timeoutSeconds": 60},
		{"spec.verify.layers": values{"Route"}, "spec.route.hostnames": values{"a"}},
		{"spec.route": object{"overrides": list(2, named), "paths": values{object{"value": "/"}}}},
		{"spec.statusCode": 301, "spec.headers": headers("LOCATION", "/")}, {"spec.statusCode": 302, "spec.headers": headers("Location", "/")},
		{"spec.statusCode": 303, "spec.headers": headers("location", "/")}, {"spec.statusCode": 307, "spec.headers": headers("Location", "/")},
		{"spec.statusCode": 308, "spec.headers": headers("Location", "/")}, {"spec.statusCode": 401, "spec.headers": headers("www-authenticate", "Basic")},
		{"spec.statusCode": 405, "spec.headers": headers("ALLOW", "GET")}, {"spec.statusCode": 407, "spec.headers": headers("Proxy-Authenticate", "Basic")},
	}
	invalidCombinations = []object{
		{"metadata.name": "with.dot"}, {"metadata.name": rep("n", 57)}, {"metadata.name": "Upper"}, {"spec": nil}, {"spec": "text"},
		{"spec.command": values{"/bin/sh"}}, {"spec.args": values{"-v"}}, {"spec.readinessPath": "/"}, {"spec.image": "i", "spec.statusCode": 200},
		{"spec.image": "i", "spec.headers": headers("A", "v")}, {"spec.image": "i", "spec.page": object{}},
		{"spec.statusCode": 301, "spec.headers": headers("X-Location", "/")}, {"spec.statusCode": 401, "spec.headers": headers("X-WWW-Authenticate", "Basic")},
		{"spec.statusCode": 405, "spec.headers": headers("X-Allow", "GET")}, {"spec.statusCode": 407, "spec.headers": headers("X-Proxy-Authenticate", "Basic")},
		{"spec.verify.layers": values{"Route"}, "spec.route.hostnames": values{"*.example.com"}},
		{"spec.route.overrides": list(1, named)}, {"spec.route": object{"overrides": list(1, named), "hostnames": values{"a"}}},
		{"spec.route": object{"overrides": list(1, named), "paths": list(1, path)}}, {"spec.route": object{"overrides": list(1, named), "paths": values{object{"value": "/a"}}}},
	}
)

func list(length int, item func(i int) any) (items values) {
	for i := range length {
		items = append(items, item(i))
	}
	return items
}

func text(i int) any             { return fmt.Sprint("a", i) }
func named(i int) any            { return object{"name": text(i)} }
func path(i int) any             { return object{"value": fmt.Sprint("/", i), "type": "Exact"} }
func gateway(section string) any { return object{"name": text(0), "sectionName": section} }

// entries returns a map of a size. It has the keys of the paths in fields, so that setting one of them does not exceed the size.
func entries(size int) object {
	all := object{"k": "1", "cpu": "1", "memory": "1"}
	for i := range size - len(all) {
		all[fmt.Sprint("example.com/k", i)] = "1"
	}
	return all
}

// nameErrors are texts that are no DNS name of at most limit characters.
func nameErrors(limit int) values {
	return values{"", "-a", "a-", "A", "a b", "a\n", "é", rep("a", limit+1)}
}

// headers returns a list of headers with these names and values.
func headers(namesAndValues ...string) (all values) {
	for i := 0; i < len(namesAndValues); i += 2 {
		all = append(all, object{"name": namesAndValues[i], "value": namesAndValues[i+1]})
	}
	return all
}

package children

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// verifierTemplates returns the pod templates of both kinds of verifier.
func verifierTemplates(all objects) map[string]*corev1.PodTemplateSpec {
	return map[string]*corev1.PodTemplateSpec{
		"VerifierDeployment": &all.verifier().Spec.Template, "VerifierDaemonSet": &all.verifierSet().Spec.Template,
	}
}

// expectVerifierPods checks what must hold for the verifier of any Echo.
func expectVerifierPods(t *testing.T, all objects, echo *echov1.Echo) {
	t.Helper()
	if problems := validation.IsDNS1123Label(VerifierName(echo)); len(problems) > 0 {
		t.Errorf("name %q is invalid: %v", VerifierName(echo), problems)
	}
	for kind, template := range verifierTemplates(all) {
		if _, found := template.Labels[EchoLabel]; found || template.Labels[VerifiesLabel] != echo.Name || len(template.Labels[ResponseLabel]) != 16 {
			t.Errorf("%s: labels of the pods = %v, want %s=%s, %s, and not %s", kind, template.Labels, VerifiesLabel, echo.Name, ResponseLabel, EchoLabel)
		}
		want := []string{"dns", "service"}
		if ExternalURL(echo, inputs) != "" {
			want = append(want, "route")
		}
		if echo.Spec.Verify != nil && len(echo.Spec.Verify.Layers) > 0 {
			declared := strings.ToLower(strings.Join(echo.Spec.Verify.Layers, " "))
			want = slices.DeleteFunc(want, func(layer string) bool { return !strings.Contains(declared, layer) })
		}
		var names []string
		for _, container := range template.Spec.Containers {
			names = append(names, container.Name)
		}
		if pod := template.Spec; !slices.Equal(names, want) || len(pod.InitContainers)+len(pod.Volumes) > 0 {
			t.Errorf("%s: pod = %v, want the containers %v, no init container and no volume", kind, pod, want)
		}
		for _, container := range template.Spec.Containers {
			for _, problem := range validation.IsValidPortName(container.Ports[0].Name) {
				t.Errorf("%s: port %q: %s", kind, container.Ports[0].Name, problem)
			}
			for _, arg := range container.Args {
				if strings.Contains(strings.ReplaceAll(arg, "$$", ""), "$") || len(echo.Spec.Message) > 40 && strings.Contains(arg, echo.Spec.Message) {
					t.Errorf("%s: argument %.80q of the verifier has an unescaped $ or the message", kind, arg)
				}
			}
		}
	}
}

// args returns the arguments of a container of the verifier.
func verifierArgs(t *testing.T, echo *echov1.Echo, layer string) []string {
	t.Helper()
	pod := desiredState(echo).verifier().Spec.Template.Spec
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == layer })
	if i < 0 {
		t.Fatalf("the verifier has no container %s", layer)
	}
	return pod.Containers[i].Args
}

func TestVerifierExpectsTheDeclaredResponse(t *testing.T) {
	response := func(code int, body string) []string {
		return []string{fmt.Sprintf("-status=%d", code), fmt.Sprintf("-length=%d", len(body)), fmt.Sprintf("-sha256=%x", sha256.Sum256([]byte(body)))}
	}
	page := newEcho(withPage("Greetings"), withStatusCode(503))
	for name, test := range map[string]struct {
		echo *echov1.Echo
		want []string
	}{
		"message":       {newEcho(), response(200, "xin chao operator\n")},
		"page":          {page, response(503, Text(page)+"\n")},
		"no content":    {newEcho(withStatusCode(204)), response(204, "")},
		"reset content": {newEcho(withStatusCode(205)), response(205, "")},
		"not modified":  {newEcho(withStatusCode(304)), response(304, "")},
		"own server":    {newEcho(ownServer), []string{"-status=0"}},
	} {
		args := verifierArgs(t, test.echo, "service")
		got := slices.DeleteFunc(slices.Clone(args), func(arg string) bool {
			return !strings.HasPrefix(arg, "-status=") && !strings.HasPrefix(arg, "-length=") && !strings.HasPrefix(arg, "-sha256=")
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: the verifier expects %v, want %v", name, got, test.want)
		}
	}
}

// The names are those of the registry of header fields that nginx, HAProxy, Varnish or Apache changed in a response.
func TestVerifierExpectsNoHeaderOfProxiesThroughThem(t *testing.T) {
	for name, wantThroughRoute := range map[string]bool{
		"Server": false, "via": false, "Warning": false, "TE": false, "Proxy-Authenticate": false, "Proxy-Connection": false, "X-Accel-Expires": false,
		"X-Server": true, "Allow": true, "Cache-Control": true, "Retry-After": true, "X-Forwarded-Proxy-Name": true,
	} {
		echo := newEcho(withVerify, withRoute, func(e *echov1.Echo) {
			e.Spec.Route.Hostnames, e.Spec.Headers = []string{"a.example"}, []echov1.Header{{Name: name, Value: "x"}}
		})
		for layer, want := range map[string]bool{"service": true, "route": wantThroughRoute} {
			if got := slices.Contains(verifierArgs(t, echo, layer), "-header="+name+": x"); got != want {
				t.Errorf("layer %s: the header %s is expected: %t, want %t", layer, name, got, want)
			}
		}
	}
}

func TestVerifierRequestsOneLayerPerContainer(t *testing.T) {
	echo := newEcho(withVerify, withRoute, func(e *echov1.Echo) {
		e.Spec.Route.Hostnames, e.Spec.Route.Paths[0].Value = []string{"a.example"}, "/$(HOME)"
	})
	for layer, want := range map[string][]string{
		"dns":     {"-layer=dns", "-url=http://echo-hello.op-demo.svc", "-cluster-ips=10.0.0.7,fd00::7", "-period=10s", "-timeout=2s", "-failure-threshold=3", "-listen=:8081"},
		"service": {"-layer=service", "-url=http://echo-hello.op-demo.svc", "-cluster-ips=10.0.0.7,fd00::7", "-listen=:8082"},
		"route":   {"-layer=route", "-url=https://a.example/$$(HOME)", "-status=200", "-listen=:8083"},
	} {
		args := verifierArgs(t, echo, layer)
		for _, arg := range want {
			if !slices.Contains(args, arg) {
				t.Errorf("container %s: args = %v, want %s", layer, args, arg)
			}
		}
		if hasIPs := slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-cluster-ips") }); hasIPs != (layer != "route") {
			t.Errorf("container %s: args = %v, cluster IPs: %t", layer, args, hasIPs)
		}
	}
}

func TestVerifierRequestsTheReadinessPathOfAnOwnServer(t *testing.T) {
	const address = "-url=http://echo-hello.op-demo.svc"
	for path, want := range map[string]string{"": address, "/healthz?full=1": address + "/healthz?full=1", "/$(HOME)": address + "/$$(HOME)", "/100%": address} {
		echo := newEcho(withVerify, ownServer, func(e *echov1.Echo) { e.Spec.ReadinessPath = path })
		if args := verifierArgs(t, echo, "service"); !slices.Contains(args, want) {
			t.Errorf("readinessPath %q: args of container service = %v, want %s", path, args, want)
		}
		if args := verifierArgs(t, echo, "dns"); !slices.Contains(args, address) {
			t.Errorf("readinessPath %q: args of container dns = %v, want %s", path, args, address)
		}
	}
}

// pathRelations are how the readiness path of a server relates to a path of the route, and whether a path of each type matches it.
var pathRelations = []struct {
	name, readiness, path string
	isPrefix, isExact     bool
}{
	{"equal", "/status", "/status", true, true},
	{"below", "/status/200", "/status", true, false},
	{"far below", "/a/b/c", "/a", true, false},
	{"with the prefix by characters only", "/status200", "/status", false, false},
	{"shorter", "/status", "/status/200", false, false},
	{"different", "/healthz", "/status", false, false},
	{"in another case", "/Status", "/status", false, false},
	{"below the root", "/status/200", "/", true, false},
	{"the root", "/", "/", true, true},
	{"with a slash at its end", "/status/", "/status", true, false},
	{"of a path with a slash at its end", "/status", "/status/", true, false},
	{"below a path with a slash at its end", "/status/200", "/status/", true, false},
	{"equal, with a query", "/status?verbose=/x", "/status", true, true},
	{"below, with a query", "/status/200?a", "/status", true, false},
	{"different, with the path in its query", "/healthz?/status", "/status", false, false},
	{"escaped", "/a%20b/c", "/a%20b", true, false},
	{"invalid", "/status/100%", "/status", false, false},
	{"unset", "", "/", false, false},
}

func TestVerifierRequestsTheReadinessPathThroughTheRouteWhereAPathMatches(t *testing.T) {
	other := echov1.Path{Type: "Exact", Value: "/other"}
	for _, relation := range pathRelations {
		for pathType, matches := range map[string]bool{"": relation.isPrefix, "PathPrefix": relation.isPrefix, "Exact": relation.isExact} {
			path := echov1.Path{Type: pathType, Value: relation.path}
			for place, paths := range map[string][]echov1.Path{"only": {path}, "first": {path, other}, "last": {other, path}} {
				want := paths[0].Value
				if matches {
					want = relation.readiness
				}
				echo := newEcho(withVerify, withRoute, ownServer, func(e *echov1.Echo) {
					e.Spec.ReadinessPath, e.Spec.Route.Hostnames, e.Spec.Route.Paths = relation.readiness, []string{"a.example"}, paths
				})
				if args := verifierArgs(t, echo, "route"); !slices.Contains(args, "-url=https://a.example"+want) {
					t.Errorf("readinessPath %s, %s path of type %q: args of container route = %v, want -url=https://a.example%s",
						relation.name, place, pathType, args, want)
				}
				if got := ExternalURL(echo, inputs); got != "https://a.example"+paths[0].Value {
					t.Errorf("ExternalURL = %s, want https://a.example%s", got, paths[0].Value)
				}
			}
		}
	}
}

func TestClusterIPsAreAddresses(t *testing.T) {
	if got := ClusterIPs(Inputs{ClusterIPs: []string{"None", "10.0.0.7", ""}}); !slices.Equal(got, []string{"10.0.0.7"}) {
		t.Errorf("ClusterIPs = %v, want 10.0.0.7", got)
	}
}

// A result about an earlier response or an earlier server must not count for the newest.
func TestResponseLabelChangesWithTheResponseAndTheServer(t *testing.T) {
	type labels struct{ ofVerifier, ofServer string }
	labelsOf := func(in Inputs, edits ...func(*echov1.Echo)) labels {
		echo, live := newEcho(append([]func(*echov1.Echo){withVerify}, edits...)...), desiredState(newEcho(withVerify))
		VerifierDeployment(live.verifier(), echo, in)
		Deployment(live.deployment(), echo, in)
		return labels{live.verifier().Spec.Template.Labels[ResponseLabel], live.deployment().Spec.Template.Labels[ResponseLabel]}
	}
	before := labelsOf(inputs)
	other := inputs
	other.ClusterIPs = []string{"10.0.0.8"}
	mirror := inputs
	mirror.ServerImage = "mirror"
	upgraded := inputs
	upgraded.VerifierImage = "verifier:2"
	type changes struct{ ofVerifier, ofServer bool }
	for name, test := range map[string]struct {
		got  labels
		want changes
	}{
		"replicas":       {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.Replicas = 3 }), changes{false, false}},
		"resources":      {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.Resources.Limits = quantities("1", "1Gi") }), changes{false, false}},
		"its resources":  {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.Verify.Resources.Limits = quantities("1", "1Gi") }), changes{false, false}},
		"verifier image": {labelsOf(upgraded), changes{false, false}},
		"message":        {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.Message = "other" }), changes{true, true}},
		"status code":    {labelsOf(inputs, withStatusCode(503)), changes{true, true}},
		"headers":        {labelsOf(inputs, withHeaders("Cache-Control", "no-store")), changes{true, true}},
		"port":           {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.Port = 81 }), changes{true, false}},
		"target port":    {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.TargetPort = 81 }), changes{false, true}},
		"image":          {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.Image = "other" }), changes{true, true}},
		"server image":   {labelsOf(mirror), changes{true, true}},
		"own server":     {labelsOf(inputs, ownServer), changes{true, true}},
		"cluster IP":     {labelsOf(other), changes{true, false}},
		"threshold":      {labelsOf(inputs, func(e *echov1.Echo) { e.Spec.Verify.FailureThreshold = 4 }), changes{true, false}},
		"hostname":       {labelsOf(inputs, withRoute, func(e *echov1.Echo) { e.Spec.Route.Hostnames = []string{"a"} }), changes{true, false}},
	} {
		got := changes{test.got.ofVerifier != before.ofVerifier, test.got.ofServer != before.ofServer}
		if got != test.want {
			t.Errorf("%s: the labels change: %v, want %v", name, got, test.want)
		}
	}
	if own, edited := labelsOf(inputs, ownServer), labelsOf(inputs, ownServer, func(e *echov1.Echo) { e.Spec.Message = "other" }); own.ofServer == edited.ofServer {
		t.Error("the label of an own server does not change with the message, which it may send")
	}
}

func TestDecisionSecondsCoverTheRounds(t *testing.T) {
	for _, test := range []struct {
		verify     *echov1.Verify
		sawRollout bool
		want       int32
	}{
		{&echov1.Verify{PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}, false, 3*14 + 5},
		{&echov1.Verify{PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}, true, 10*14 + 5},
		{&echov1.Verify{PeriodSeconds: 1, TimeoutSeconds: 1, FailureThreshold: 1}, false, 8},
		{&echov1.Verify{PeriodSeconds: 300, TimeoutSeconds: 60, FailureThreshold: 10}, true, 10*391 + 5},
	} {
		if got := DecisionSeconds(test.verify, test.sawRollout); got != test.want {
			t.Errorf("DecisionSeconds(%+v, %t) = %d, want %d", test.verify, test.sawRollout, got, test.want)
		}
	}
	pod := desiredState(newEcho(withVerify)).verifier().Spec.Template.Spec
	if got := pod.Containers[0].StartupProbe.FailureThreshold; got <= DecisionSeconds(newEcho(withVerify).Spec.Verify, false) {
		t.Errorf("the kubelet restarts a verifier after %d s, before it has a result", got)
	}
}

package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

const (
	deployment = "Deployment echo-operator-system/echo-operator-controller-manager"
	pod        = deployment + " spec.template.spec."
	container  = pod + "containers[0]."
	policy     = "NetworkPolicy echo-operator-system/echo-operator-controller-manager"
	newDigest  = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	oldDigest  = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
)

// change is a value, and the changes that it makes to the objects.
type change struct {
	value string
	want  []string
}

// images are the images of the chart, each with the field of the operator's container that names it.
var images = []struct{ name, field, image string }{
	{"operator", "image", "ghcr.io/kkloud-io/echo-operator"},
	{"httpEcho", "env[1].value", "ghcr.io/kkloud-io/echo-operator-http-echo"},
	{"verifier", "env[2].value", "ghcr.io/kkloud-io/echo-operator-verifier"},
}

// imageChanges returns a change of each key of images.
func imageChanges() map[string]change {
	found := map[string]change{}
	mirror := change{value: `"registry.example.com/mirror"`}
	for _, i := range images {
		before := container + i.field + `: "` + i.image + "@" + oldDigest + `" → "`
		mirror.want = append(mirror.want, before+strings.Replace(i.image, "ghcr.io", "registry.example.com/mirror", 1)+"@"+oldDigest+`"`)
		key := "images." + i.name
		found[key+".repository"] = change{`"own/image"`, []string{before + "ghcr.io/own/image@" + oldDigest + `"`}}
		found[key+".tag"] = change{`"v9"`, []string{before + i.image + `:v9"`}}
		found[key+".digest"] = change{`"` + newDigest + `"`, []string{before + i.image + "@" + newDigest + `"`}}
	}
	slices.Sort(mirror.want)
	found["images.registry"] = mirror
	return found
}

// otherChanges has a change of every other key.
var otherChanges = map[string]change{
	"imagePullSecrets": {`[{"name": "mirror"}]`, []string{pod + `imagePullSecrets[0].name:  → "mirror"`}},
	"crds.enabled":     {`false`, []string{"-CustomResourceDefinition echoes.kkloud.io"}},
	"crds.keep": {`false`, []string{
		`CustomResourceDefinition echoes.kkloud.io metadata.annotations.helm.sh/resource-policy: "keep" → `}},
	"watchNamespaces": {`["team-a", "team-b"]`, []string{
		"-ClusterRoleBinding echo-operator-manager-rolebinding",
		container + `env[0].value:  → "team-a,team-b"`,
		"+RoleBinding team-a/echo-operator-manager-rolebinding",
		"+RoleBinding team-b/echo-operator-manager-rolebinding",
	}},
	"allowEveryNodeVerification": {`true`, []string{container + `args[1]:  → "--allow-every-node-verification"`}},
	"extraArgs":                  {`["--zap-log-level=debug"]`, []string{container + `args[1]:  → "--zap-log-level=debug"`}},
	"replicas":                   {`3`, []string{deployment + ` spec.replicas: 2 → 3`}},
	"resources.requests":         {`{"cpu": "20m"}`, []string{container + `resources.requests.cpu: "10m" → "20m"`}},
	"resources.limits":           {`{"memory": "1Gi"}`, []string{container + `resources.limits.memory: "256Mi" → "1Gi"`}},
	"nodeSelector":               {`{"role": "system"}`, []string{pod + `nodeSelector.role:  → "system"`}},
	"tolerations":                {`[{"key": "infra"}]`, []string{pod + `tolerations[0].key:  → "infra"`}},
	"affinity.nodeAffinity":      {`null`, arches()},
	"affinity.podAffinity":       {`{"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}`, affine("podAffinity")},
	"affinity.podAntiAffinity":   {`{"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}`, affine("podAntiAffinity")},
	"priorityClassName":          {`"critical"`, []string{pod + `priorityClassName:  → "critical"`}},
	"podLabels":                  {`{"team": "web"}`, []string{deployment + ` spec.template.metadata.labels.team:  → "web"`}},
	"podAnnotations":             {`{"note": "x"}`, []string{deployment + ` spec.template.metadata.annotations.note:  → "x"`}},
	"monitoring.serviceMonitor":  {`true`, []string{"+ServiceMonitor echo-operator-system/echo-operator-metrics"}},
	"monitoring.podMonitor":      {`true`, []string{"+PodMonitor echo-operator-system/echo-operator-servers", "+PodMonitor echo-operator-system/echo-operator-verifiers"}},
	"monitoring.prometheusRule":  {`true`, []string{"+PrometheusRule echo-operator-system/echo-operator-alerts"}},
	"monitoring.dashboard":       {`true`, []string{"+ConfigMap echo-operator-system/echo-operator-dashboard"}},
	"monitoring.labels":          {`{"release": "prometheus"}`, nil}, // See TestMonitoringLabels.
	"networkPolicy.enabled":      {`false`, []string{"-" + policy}},
	"networkPolicy.ingress": {`[]`, []string{
		policy + ` spec.ingress[0].from[0].namespaceSelector.matchLabels.metrics: "enabled" → `,
		policy + ` spec.ingress[0].ports[0].port: "metrics" → `,
		policy + ` spec.ingress[0].ports[0].protocol: "TCP" → `,
	}},
	"networkPolicy.egress": {`[{}]`, egress()},
	"fullnameOverride":     {`"echo-operator"`, nil}, // See TestNamesFollowTheRelease.
	"global":               {`{"any": "key"}`, nil},  // Helm passes it to every chart.
	"enabled":              {`true`, nil},            // The usual condition of a chart that depends on this one.
}

func arches() (want []string) {
	expressions := pod + "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions"
	for _, field := range []string{
		`[0].key: "kubernetes.io/arch"`, `[0].operator: "In"`, `[0].values[0]: "amd64"`, `[0].values[1]: "arm64"`,
		`[1].key: "kubernetes.io/os"`, `[1].operator: "In"`, `[1].values[0]: "linux"`,
	} {
		want = append(want, expressions+field+" → ")
	}
	return want
}

func affine(kind string) []string {
	return []string{pod + "affinity." + kind + `.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey:  → "zone"`}
}

func egress() (want []string) {
	for _, field := range []string{
		`[0].ports[0].port: 443`, `[0].ports[0].protocol: "TCP"`, `[0].ports[1].port: 6443`, `[0].ports[1].protocol: "TCP"`,
		`[0].ports[2].port: 8443`, `[0].ports[2].protocol: "TCP"`, `[1].ports[0].port: 53`, `[1].ports[0].protocol: "UDP"`,
		`[1].ports[1].port: 53`, `[1].ports[1].protocol: "TCP"`,
	} {
		want = append(want, policy+" spec.egress"+field+" → ")
	}
	return want
}

// releasedChart returns the directory of a chart whose images have digests, as in a release.
func releasedChart(t *testing.T) string {
	t.Helper()
	released := filepath.Join(t.TempDir(), "echo-operator")
	if err := os.CopyFS(released, os.DirFS(directory)); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile("(?m)^( +image: ghcr.io/kkloud-io/[a-z-]+)[:@].*$").
		ReplaceAll(repo.Read(t, directory+"/Chart.yaml"), []byte("${1}@"+oldDigest))
	if err := os.WriteFile(released+"/Chart.yaml", text, 0o600); err != nil {
		t.Fatal(err)
	}
	return released
}

func TestEachValueChangesOnlyWhatItNames(t *testing.T) {
	released := releasedChart(t)
	defaults := renderChart(t, released, release, namespace, "{}")
	cases := union(imageChanges(), otherChanges)
	values, _ := schema(t)
	repo.Same(t, "keys with a case", slices.Collect(maps.Keys(cases)), slices.Collect(maps.Keys(values)))
	for key, test := range cases {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			found := changes(t, defaults, renderChart(t, released, release, namespace, nested(key, test.value)))
			if difference := cmp.Diff(test.want, found); difference != "" {
				t.Errorf("changes of %s=%s, want (-), got (+):\n%s", key, test.value, difference)
			}
		})
	}
}

func TestMonitoringLabels(t *testing.T) {
	without := render(t, release, namespace, monitoring)
	with := render(t, release, namespace, monitoring, "--set", "monitoring.labels.release=prometheus")
	var want []string
	for _, object := range []string{
		"ConfigMap echo-operator-system/echo-operator-dashboard",
		"PodMonitor echo-operator-system/echo-operator-servers", "PodMonitor echo-operator-system/echo-operator-verifiers",
		"PrometheusRule echo-operator-system/echo-operator-alerts", "ServiceMonitor echo-operator-system/echo-operator-metrics",
	} {
		want = append(want, object+` metadata.labels.release:  → "prometheus"`)
	}
	if difference := cmp.Diff(want, changes(t, without, with)); difference != "" {
		t.Errorf("changes of monitoring.labels, want (-), got (+):\n%s", difference)
	}
}

func TestSchemaHasTheTypeOfEachValueAndNoOtherKey(t *testing.T) {
	values, parents := schema(t)
	for key, value := range values {
		if value.Type == nil {
			t.Errorf("values.schema.json: %s has no type", key)
		}
	}
	for key, parent := range parents {
		if parent.AdditionalProperties != false {
			t.Errorf("values.schema.json: the object %q allows any key, want additionalProperties: false", key)
		}
	}
}

func TestSchemaRejects(t *testing.T) {
	for _, test := range []struct{ key, value string }{
		{"images.registry", `"registry.example.com/"`},
		{"images.registry", `""`},
		{"images.operator.repository", `"with:tag"`},
		{"images.operator.tag", `"sha256:abc"`},
		{"images.operator.digest", `"latest"`},
		{"watchNamespaces", `["a,b"]`},
		{"watchNamespaces", `["a", "a"]`},
		{"watchNamespaces", `[""]`},
		{"extraArgs", `["leader-elect"]`},
		{"replicas", `-1`},
		{"replicas", `"3"`},
		{"crds", `{"enable": false}`},
		{"imagePullSecrets", `["name"]`},
		{"tolerations", `[{"efect": "NoSchedule"}]`},
		{"affinity", `{"nodeAntiAffinity": {}}`},
		{"podLabels", `{"a": 1}`},
		{"crds", `{"keep": null}`},
		{"networkPolicy", `{"egress": null}`},
		{"monitoring.labels", `{"app.kubernetes.io/instance": "other"}`},
		{"fullnameOverride", `"Echo"`},
	} {
		t.Run(test.key+"="+test.value, func(t *testing.T) {
			t.Parallel()
			_, messages, err := helm(nested(test.key, test.value), "template", release, directory)
			if want := "at '/" + strings.ReplaceAll(test.key, ".", "/"); err == nil || !strings.Contains(messages, want) {
				t.Errorf("helm template: %v, want a message that contains %q:\n%s", err, want, messages)
			}
		})
	}
}

// Helm removes a null before it checks the schema, and the default with it.
func TestNullIsNoErrorOfATemplate(t *testing.T) {
	for key := range union(schema(t)) {
		if key == "" {
			continue // All values.
		}
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			_, messages, err := helm(nested(key, "null"), "template", release, directory)
			if err != nil && !strings.Contains(messages, "don't meet the specifications of the schema") {
				t.Errorf("helm template with %s=null: %v\n%s", key, err, messages)
			}
		})
	}
}

// properties are a part of values.schema.json.
type properties struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Properties           map[string]properties
	AdditionalProperties any
	Definitions          map[string]properties
}

// schema returns the values by their path, and the objects that contain them.
func schema(t *testing.T) (values, parents map[string]properties) {
	t.Helper()
	var root properties
	if err := json.Unmarshal(repo.Read(t, directory+"/values.schema.json"), &root); err != nil {
		t.Fatal(err)
	}
	values, parents = map[string]properties{}, map[string]properties{}
	var walk func(path string, p properties)
	walk = func(path string, p properties) {
		if p.Ref != "" {
			p = root.Definitions[strings.TrimPrefix(p.Ref, "#/definitions/")]
		}
		if len(p.Properties) == 0 {
			values[path] = p
		} else {
			parents[path] = p
		}
		for name, child := range p.Properties {
			walk(strings.TrimPrefix(path+"."+name, "."), child)
		}
	}
	walk("", root)
	return values, parents
}

// nested returns values in which the key has a value.
func nested(key, value string) string {
	for _, name := range slices.Backward(strings.Split(key, ".")) {
		value = fmt.Sprintf("{%q: %s}", name, value)
	}
	return value
}

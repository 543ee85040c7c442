package chart

import (
	"bytes"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

const monitoring = `{"monitoring": {"serviceMonitor": true, "podMonitor": true, "prometheusRule": true, "dashboard": true}}`

func TestLint(t *testing.T) {
	if output, err := exec.Command("helm", "lint", "--strict", directory).CombinedOutput(); err != nil {
		t.Fatalf("helm lint: %v\n%s", err, output)
	}
}

// The differences are those that the comments name.
func TestDefaultsEqualTheManifestsOfKustomize(t *testing.T) {
	got := render(t, release, namespace, monitoring)
	for name, object := range got {
		metadata := object["metadata"].(repo.Object)
		for _, key := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
			if labels := metadata["labels"].(repo.Object); labels[key] == nil {
				t.Errorf("%s has no label %s", name, key)
			} else if delete(labels, key); len(labels) == 0 {
				delete(metadata, "labels")
			}
		}
	}
	crd := got["CustomResourceDefinition echoes.kkloud.io"]["metadata"].(repo.Object)["annotations"].(repo.Object)
	delete(crd, "helm.sh/resource-policy")
	// Alerts and dashboard select the job by its name, and another release has another one.
	monitor := got["ServiceMonitor "+namespace+"/echo-operator-metrics"]["spec"].(repo.Object)
	delete(monitor["endpoints"].([]any)[0].(repo.Object), "relabelings")

	want := kustomize(t, "default")
	maps.Copy(want, kustomize(t, "prometheus"))
	delete(want, "Namespace "+namespace) // helm install --create-namespace creates it.
	for _, manifests := range []objects{got, want} {
		ignoreWatchNamespace(t, manifests["Deployment "+namespace+"/echo-operator-controller-manager"])
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("kustomize (-) and helm template (+):\n%s", difference)
	}
}

// ignoreWatchNamespace removes the variable with the watched namespaces, which kustomize takes from OLM and Helm from its
// values, and sorts the others, whose order does not matter.
func ignoreWatchNamespace(t *testing.T, deployment repo.Object) {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	container := containers[0].(repo.Object)
	name := func(variable any) string { return variable.(repo.Object)["name"].(string) }
	env := slices.DeleteFunc(container["env"].([]any), func(variable any) bool { return name(variable) == "WATCH_NAMESPACE" })
	slices.SortFunc(env, func(a, b any) int { return strings.Compare(name(a), name(b)) })
	container["env"] = env
	if err := unstructured.SetNestedSlice(deployment, containers, "spec", "template", "spec", "containers"); err != nil {
		t.Fatal(err)
	}
}

func TestNamesFollowTheRelease(t *testing.T) {
	want := render(t, release, namespace, monitoring)
	for _, test := range []struct{ release, namespace, values, prefix string }{
		{"echo-operator-2", "elsewhere", monitoring, "echo-operator-2"},
		{"team-a", "elsewhere", monitoring, "team-a-echo-operator"},
		{"team.a", "elsewhere", monitoring, "team-a-echo-operator"},
		{strings.Repeat("long", 13), "elsewhere", monitoring, strings.Repeat("long", 11)},
		{"team-a", namespace, `{"fullnameOverride": "other", ` + monitoring[1:], "other"},
	} {
		text, err := yaml.Marshal(render(t, test.release, test.namespace, test.values))
		if err != nil {
			t.Fatal(err)
		}
		// The names of the lease, the images, the labels, the job and the dashboard do not depend on the release.
		renamed := strings.NewReplacer(
			"instance: "+test.release+"\n", "instance: echo-operator\n",
			" "+test.namespace+"/", " "+namespace+"/", "namespace: "+test.namespace+"\n", "namespace: "+namespace+"\n",
			test.prefix+"-", "echo-operator-",
		).Replace(string(text))
		got := objects{}
		if err := yaml.Unmarshal([]byte(renamed), &got); err != nil {
			t.Fatalf("%v in\n%s", err, renamed)
		}
		if found := changes(t, want, got); len(found) > 0 {
			t.Errorf("release %s in %s with %s, beside its names:\n%s", test.release, test.namespace, test.values, strings.Join(found, "\n"))
		}
	}
}

func TestNoNameOfTheDefaultReleaseIsFixed(t *testing.T) {
	text, err := yaml.Marshal(render(t, "team-a", "elsewhere", `{"fullnameOverride": "other"}`))
	if err != nil {
		t.Fatal(err)
	}
	const shared = "echo-operator-leader-election-rolebinding"
	text = bytes.ReplaceAll(text, []byte(shared), nil)
	for name, object := range render(t, release, namespace, "{}") {
		fixed, _, err := unstructured.NestedString(object, "metadata", "name")
		if err != nil {
			t.Fatal(err)
		}
		if fixed != "echoes.kkloud.io" && bytes.Contains(text, []byte(fixed)) {
			t.Errorf("a release with the names other-* contains the name of %s:\n%s", name, text)
		}
	}
	if bytes.Contains(text, []byte(namespace)) {
		t.Errorf("a release in the namespace elsewhere contains %s:\n%s", namespace, text)
	}
}

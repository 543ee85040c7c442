// Package linters checks the manifests of the operator and the children of Echoes against the restricted Pod
// Security Standard, and with kube-score.
package linters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	psaapi "k8s.io/pod-security-admission/api"
	psapolicy "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// waivers accept findings of kube-score. objects is a pattern for path.Match of <set>/<name>; the sets are
// operator, bundle and sample-<name>. A waiver that matches no finding fails the test.
var waivers = []struct{ check, objects, reason string }{
	{"container-security-context-user-group-id", "*/*",
		"The images and the clusters choose the user. OpenShift rejects a pod that names a user outside of its range."},
	{"container-image-pull-policy", "*/*",
		"A digest, or a tag that never moves, always names the same image. With Always, no pod starts while the registry is unavailable."},
	{"container-ephemeral-storage-request-and-limit", "*/*",
		"Only the log can grow, and the kubelet rotates it. /tmp of the servers has a size limit."},
	{"pod-networkpolicy", "bundle/*", "The NetworkPolicy is in config/network-policy and not in the bundle."},
	{"pod-networkpolicy", "sample-*/*", "The owner of the namespace decides which traffic to allow."},
	{"deployment-has-host-podantiaffinity", "*/*",
		"Topology spread constraints spread the pods of one revision. Anti-affinity cannot distinguish revisions."},
	{"pod-probes-identical", "sample-*/*", "http-echo has only one path for probes. The liveness probe runs a fifth as often."},
	{"container-security-context-readonlyrootfilesystem", "sample-*/*", "Many images write beside their program."},
	{"deployment-replicas", "sample-*/*", "The user chooses the number of replicas."},
	{"pod-probes", "sample-*/*", "Without readinessPath, the operator does not know whether a user's own server listens, or on which path."},
}

// manifests are applied together. kube-score considers the relations between them.
type manifests struct {
	set     string
	objects []any
}

// pods returns the pod templates, by the name of their workload.
func (m manifests) pods(t *testing.T) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for _, object := range m.objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var workload appsv1.Deployment // A DaemonSet has the same template.
		if err := yaml.Unmarshal(text, &workload); err != nil {
			t.Fatal(err)
		}
		if len(workload.Spec.Template.Spec.Containers) > 0 {
			found[m.set+"/"+workload.Name] = workload.Spec.Template
		}
	}
	return found
}

// all returns the operator as kustomize and as OLM install it, and the children of the samples.
func all(t *testing.T) []manifests {
	t.Helper()
	output, err := exec.Command("kustomize", "build", repo.Root+"/config/default").Output()
	if err != nil {
		t.Fatalf("kustomize: %v. Run `make package-check`, which builds kustomize", err)
	}
	operator, bundle := manifests{set: "operator"}, manifests{set: "bundle"}
	for document := range bytes.SplitSeq(output, []byte("\n---\n")) {
		object := repo.Object{}
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		operator.objects = append(operator.objects, object)
	}
	var csv v1alpha1.ClusterServiceVersion
	if err := yaml.Unmarshal(repo.Read(t, repo.CSVFile), &csv); err != nil {
		t.Fatal(err)
	}
	for _, deployment := range csv.Spec.InstallStrategy.StrategySpec.DeploymentSpecs {
		bundle.objects = append(bundle.objects, repo.Object{"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": repo.Object{"name": deployment.Name, "namespace": "operators"}, "spec": deployment.Spec})
	}
	budget := repo.Object{}
	if err := yaml.Unmarshal(repo.Read(t, filepath.Dir(repo.CSVFile)+"/echo-operator-controller-manager_policy_v1_poddisruptionbudget.yaml"), &budget); err != nil {
		t.Fatal(err)
	}
	budget["metadata"].(map[string]any)["namespace"] = "operators"
	bundle.objects = append(bundle.objects, budget)
	found := []manifests{operator, bundle}
	for _, file := range repo.Glob(t, repo.Root+"/config/samples/*.yaml") {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		// The API server sets these defaults.
		echo := echov1.Echo{Spec: echov1.EchoSpec{Replicas: 1, Port: 80, TargetPort: 5678}}
		if err := yaml.UnmarshalStrict(repo.Read(t, file), &echo); err != nil {
			t.Fatal(err)
		}
		echo.Namespace = "demo"
		found = append(found, childrenOf(t, echo, "sample-"+echo.Name))
		if echo.Spec.Verify != nil {
			echo.Spec.Verify.From = echov1.VerifyFromEveryNode
			found = append(found, childrenOf(t, echo, "sample-"+echo.Name+"-on-every-node"))
		}
	}
	return found
}

func childrenOf(t *testing.T, echo echov1.Echo, set string) manifests {
	t.Helper()
	m := manifests{set: set}
	for _, kind := range children.Kinds {
		if kind.OptionalAPI || !kind.Wanted(&echo) {
			continue // kube-score has no checks for HTTPRoutes.
		}
		child := kind.New()
		kind.Mutate(child, &echo, children.Inputs{ServerImage: "example.com/server:v1.0.0", VerifierImage: "example.com/verifier:v1.0.0"})
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(child)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{Object: content}
		object.SetGroupVersionKind(kind.Resource.GroupVersion().WithKind(kind.ObjectKind))
		object.SetNamespace(echo.Namespace)
		object.SetName(kind.ChildName(&echo))
		m.objects = append(m.objects, object.Object)
	}
	return m
}

func TestPodsMeetTheRestrictedPodSecurityStandard(t *testing.T) {
	evaluator, err := psapolicy.NewEvaluator(psapolicy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	for _, m := range all(t) {
		for name, pod := range m.pods(t) {
			if result := psapolicy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
				t.Errorf("%s violates the restricted Pod Security Standard: %s", name, result.ForbiddenDetail())
			}
		}
	}
}

func TestManifestsPassKubeScore(t *testing.T) {
	needed := map[int]bool{}
	for _, m := range all(t) {
		for object, checks := range kubeScore(t, m) {
		findings:
			for _, check := range checks {
				for i, w := range waivers {
					if matched, err := path.Match(w.objects, object); err == nil && matched && w.check == check {
						needed[i] = true
						continue findings
					}
				}
				t.Errorf("%s violates the check %s of kube-score", object, check)
			}
		}
	}
	for i, w := range waivers {
		if !needed[i] {
			t.Errorf("the waiver of %s for %s matches no finding: remove it", w.check, w.objects)
		}
	}
}

// kubeScore returns the checks that each object violates.
func kubeScore(t *testing.T, m manifests) map[string][]string {
	t.Helper()
	var input bytes.Buffer
	for _, object := range m.objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&input, "---\n%s", text)
	}
	command := exec.Command("kube-score", "score", "--output-format=json", "--disable-ignore-checks-annotations",
		"--kubernetes-version=v"+repo.OldestKubernetes(t), "-")
	command.Stdin = &input
	output, failure := command.Output() // It also exits with 1 after findings.
	var report []struct {
		ObjectMeta metav1.ObjectMeta `json:"object_meta"`
		Checks     []struct {
			Check   struct{ ID string }
			Grade   int
			Skipped bool
		}
	}
	if err := json.Unmarshal(output, &report); err != nil {
		t.Fatalf("kube-score: %v, %v. Run `make package-check`, which builds kube-score", failure, err)
	}
	found := map[string][]string{}
	for _, object := range report {
		for _, c := range object.Checks {
			if !c.Skipped && c.Grade < 10 {
				name := m.set + "/" + object.ObjectMeta.Name
				found[name] = append(found[name], c.Check.ID)
			}
		}
	}
	return found
}

// Package linters checks the operator's manifests and the children of Echoes against kube-score, kubesec
// and rules of other linters. docs/manifest-rules.md lists the rules.
package linters

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

const (
	namespace    = "echo-operator-system"
	documentFile = repo.Root + "/docs/manifest-rules.md"
	// own is the name of the linter that this package implements.
	own = "own"
)

// set contains manifests that are applied together. Rules can depend on several objects of a set.
type set struct {
	name    string
	objects []client.Object
}

// finding is an object that violates a rule.
type finding struct{ linter, rule, object string }

// waiver accepts findings and states the reason. Rule and Objects are patterns for path.Match; an
// object is <set>/<kind>/<name>.
type waiver struct {
	Linter, Rule string
	Objects      []string
	Reason       string
}

// linters return the findings in a set.
var linters = map[string]func(*testing.T, set) []finding{
	own:          runChecks,
	"kube-score": runKubeScore,
	"kubesec":    runKubesec,
}

func TestManifestsPassLinters(t *testing.T) {
	var waivers []waiver
	if err := yaml.UnmarshalStrict(repo.Read(t, "waivers.yaml"), &waivers); err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{}
	for _, s := range sets(t) {
		for _, lint := range linters {
			for _, f := range lint(t, s) {
				waived := false
				for _, w := range waivers {
					for _, pattern := range w.Objects {
						if w.Linter == f.linter && repo.Matches(t, w.Rule, f.rule) && repo.Matches(t, pattern, f.object) {
							needed[w.Linter+w.Rule+pattern] = true
							waived = true
						}
					}
				}
				if !waived {
					t.Errorf("%s violates rule %s of %s", f.object, f.rule, f.linter)
				}
			}
		}
	}
	for _, w := range waivers {
		if len(w.Objects) == 0 || len(w.Reason) < 20 {
			t.Errorf("waiver for rule %s of %s: want objects and a reason of at least 20 characters", w.Rule, w.Linter)
		}
		for _, pattern := range w.Objects {
			if !needed[w.Linter+w.Rule+pattern] {
				t.Errorf("waiver for rule %s of %s matches no finding for %s: remove it", w.Rule, w.Linter, pattern)
			}
		}
	}
}

// The operator's pod sets no user, so the images must name one. Every image derives from scratch.
func TestImagesRunAsHighNumericUser(t *testing.T) {
	user := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`)
	stages := strings.Split(string(repo.Read(t, repo.Root+"/Dockerfile")), "\nFROM ")
	checked := 0
	for _, stage := range stages[1:] {
		name, _, _ := strings.Cut(stage, "\n")
		users := user.FindAllStringSubmatch(stage, -1)
		if strings.HasPrefix(name, "scratch ") {
			checked++
			if len(users) != 1 {
				t.Errorf("Dockerfile: stage %q names %d numeric users, want 1", name, len(users))
			}
		}
		for _, user := range users {
			for _, id := range user[1:] {
				if n, err := strconv.Atoi(id); err != nil || n < 10000 {
					t.Errorf("Dockerfile: %s: want user and group of at least 10000", user[0])
				}
			}
		}
		if users == nil && strings.Contains(stage, "\nUSER ") {
			t.Errorf("Dockerfile: stage %q names a user by name", name)
		}
	}
	if checked == 0 {
		t.Error("Dockerfile has no stage FROM scratch")
	}
}

// The document states how each rule is checked, so it must name every check.
func TestManifestRulesDocumentEveryCheck(t *testing.T) {
	text := string(repo.Read(t, documentFile))
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
		if !strings.Contains(text, own+" `"+c.name+"`") {
			t.Errorf("%s does not name the check %q", documentFile, c.name)
		}
	}
	for _, match := range regexp.MustCompile(own+" `([^`]+)`").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, match[1]) {
			t.Errorf("%s names the check %q, which does not exist", documentFile, match[1])
		}
	}
}

// sets returns all manifests that the linters check: the operator as kustomize and as OLM install it,
// the children in the golden files, and the children of the samples.
func sets(t *testing.T) []set {
	t.Helper()
	output, err := exec.Command("kustomize", "build", repo.Root+"/config/default").Output()
	if err != nil {
		t.Fatalf("kustomize: %v. Run `make manifests-check`, which builds kustomize", err)
	}
	operator := set{"operator", decode(t, output)}
	all := []set{operator, bundle(t)}
	for _, folder := range repo.Glob(t, repo.Root+"/internal/children/testdata/*") {
		switch filepath.Base(folder) {
		case "fuzz":
		case "verify":
			for _, from := range []string{echov1.VerifyFromCluster, echov1.VerifyFromEveryNode} {
				all = append(all, golden(t, folder, &echov1.Verify{From: from}))
			}
		default:
			all = append(all, golden(t, folder, nil))
		}
	}
	image, verifierImage := operatorVariable(t, operator, "RELATED_IMAGE_HTTP_ECHO"), operatorVariable(t, operator, "RELATED_IMAGE_VERIFIER")
	for _, file := range repo.Glob(t, repo.Root+"/config/samples/*.yaml") {
		if filepath.Base(file) != "kustomization.yaml" {
			all = append(all, sample(t, file, image, verifierImage))
		}
	}
	if len(all) < 12 {
		t.Errorf("found %d sets of manifests, want at least 12", len(all))
	}
	return all
}

// bundle returns the objects that OLM creates from the bundle.
func bundle(t *testing.T) set {
	t.Helper()
	s := set{name: "bundle"}
	for _, file := range repo.Glob(t, repo.Root+"/bundle/manifests/*.yaml") {
		if file != repo.CSVFile {
			s.objects = append(s.objects, decode(t, repo.Read(t, file))...)
		}
	}
	var csv struct {
		Spec struct {
			Install struct {
				Spec struct {
					Deployments []struct {
						Name  string
						Label map[string]string
						Spec  appsv1.DeploymentSpec
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(repo.Read(t, repo.CSVFile), &csv); err != nil {
		t.Fatal(err)
	}
	for _, deployment := range csv.Spec.Install.Spec.Deployments {
		s.objects = append(s.objects,
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: deployment.Name, Labels: deployment.Label}, Spec: deployment.Spec},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: deployment.Spec.Template.Spec.ServiceAccountName}})
	}
	setKinds(t, s)
	for _, object := range s.objects {
		if isNamespaced(object) {
			object.SetNamespace(namespace)
		}
	}
	return s
}

// golden returns the children in a folder of golden files, which contain neither kind nor name.
func golden(t *testing.T, folder string, verify *echov1.Verify) set {
	t.Helper()
	name := "golden-" + filepath.Base(folder)
	if verify != nil {
		name += "-" + strings.ToLower(verify.From)
	}
	return echoSet(t, name, verify, func(kind children.Kind, object client.Object) {
		file := filepath.Join(folder, strings.ToLower(kind.Name)+".yaml")
		if err := yaml.UnmarshalStrict(repo.Read(t, file), object); err != nil {
			t.Fatal(err)
		}
	})
}

// sample returns the children of an Echo in config/samples.
func sample(t *testing.T, file, image, verifierImage string) set {
	t.Helper()
	// The API server sets these defaults.
	echo := &echov1.Echo{Spec: echov1.EchoSpec{Replicas: 1, Port: 80, TargetPort: 5678}}
	if err := yaml.UnmarshalStrict(repo.Read(t, file), echo); err != nil {
		t.Fatal(err)
	}
	return echoSet(t, "sample-"+echo.Name, echo.Spec.Verify, func(kind children.Kind, object client.Object) {
		kind.Mutate(object, echo, children.Inputs{ServerImage: image, VerifierImage: verifierImage})
	})
}

// echoSet returns the children of one Echo. fill sets the fields of a child.
func echoSet(t *testing.T, name string, verify *echov1.Verify, fill func(children.Kind, client.Object)) set {
	t.Helper()
	s, echo := set{name: name}, &echov1.Echo{Spec: echov1.EchoSpec{Verify: verify}}
	objects := map[string]client.Object{}
	for _, kind := range children.Kinds {
		object := kind.New().(client.Object)
		fill(kind, object)
		objects[kind.Name] = object
		if deployment, ok := object.(*appsv1.Deployment); ok && !kind.Verifier {
			echo.Name, echo.Spec.Replicas = deployment.Labels[children.EchoLabel], *deployment.Spec.Replicas
		}
	}
	for _, kind := range children.Kinds {
		if object := objects[kind.Name]; kind.Wanted(echo) {
			object.SetName(kind.ChildName(echo))
			object.SetNamespace("op-demo")
			s.objects = append(s.objects, object)
		}
	}
	return setKinds(t, s)
}

// operatorVariable returns the value of an environment variable of the operator.
func operatorVariable(t *testing.T, operator set, name string) string {
	t.Helper()
	for _, deployment := range of[*appsv1.Deployment](operator) {
		for _, env := range deployment.Spec.Template.Spec.Containers[0].Env {
			if env.Name == name {
				return env.Value
			}
		}
	}
	t.Fatalf("the operator's Deployment does not set %s", name)
	return ""
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}()

// decode reads objects. It fails the test if a field is not part of the object's kind.
func decode(t *testing.T, text []byte) []client.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []client.Object
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		objects = append(objects, object.(client.Object))
	}
	return setKinds(t, set{objects: objects}).objects
}

// setKinds sets apiVersion and kind of every object.
func setKinds(t *testing.T, s set) set {
	t.Helper()
	for _, object := range s.objects {
		kind, err := apiutil.GVKForObject(object, scheme)
		if err != nil {
			t.Fatal(err)
		}
		object.GetObjectKind().SetGroupVersionKind(kind)
	}
	return s
}

func (s set) copy() set {
	c := set{name: s.name}
	for _, object := range s.objects {
		c.objects = append(c.objects, object.DeepCopyObject().(client.Object))
	}
	return c
}

func (s set) nameOf(kind, name string) string { return s.name + "/" + kind + "/" + name }

// runKubeScore runs every rule of kube-score and ignores annotations that disable rules.
func runKubeScore(t *testing.T, s set) []finding {
	t.Helper()
	var report []struct {
		TypeMeta   metav1.TypeMeta   `json:"type_meta"`
		ObjectMeta metav1.ObjectMeta `json:"object_meta"`
		Checks     []struct {
			Check   struct{ ID string }
			Grade   int
			Skipped bool
		}
	}
	run(t, s.objects, &report, "kube-score", "score", "--output-format=json", "--all-default-optional",
		"--disable-ignore-checks-annotations", "--kubernetes-version=v"+repo.OldestKubernetes(t), "-")
	var found []finding
	results := 0
	for _, object := range report {
		for _, c := range object.Checks {
			if !c.Skipped {
				results++
				if c.Grade < 10 {
					found = append(found, finding{"kube-score", c.Check.ID, s.nameOf(object.TypeMeta.Kind, object.ObjectMeta.Name)})
				}
			}
		}
	}
	if results < 20 {
		t.Errorf("%s: kube-score returned %d results, want at least 20", s.name, results)
	}
	return found
}

// runKubesec runs every rule of kubesec. A rule that could add points and adds none counts as violated.
func runKubesec(t *testing.T, s set) []finding {
	t.Helper()
	// kubesec would download its schemas. Other tests validate the manifests with an API server, so this
	// schema accepts every manifest.
	anything := filepath.Join(t.TempDir(), "anything.json")
	if err := os.WriteFile(anything, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var found []finding
	for _, workload := range s.objects {
		if templateOf(workload) == nil {
			continue
		}
		var report []struct {
			Valid   bool
			Message string
			Scoring struct{ Critical, Advise, Passed []struct{ ID string } }
		}
		run(t, []client.Object{workload}, &report, "kubesec", "scan", "--schema-location="+anything, "-")
		scoring := report[0].Scoring
		if !report[0].Valid || len(scoring.Advise)+len(scoring.Passed) < 10 {
			t.Errorf("%s: kubesec returned fewer than 10 results: %s", s.name, report[0].Message)
		}
		for _, rule := range slices.Concat(scoring.Critical, scoring.Advise) {
			found = append(found, finding{"kubesec", rule.ID, s.nameOf(kindOf(workload), workload.GetName())})
		}
	}
	return found
}

// run passes objects to a program and decodes its output. The exit code states only whether the program
// found a violation, so run ignores it.
func run(t *testing.T, objects []client.Object, report any, program string, args ...string) {
	t.Helper()
	var input bytes.Buffer
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&input, "---\n%s", text)
	}
	command := exec.Command(program, args...)
	command.Stdin = &input
	output, err := command.Output()
	if failure := json.Unmarshal(output, report); failure != nil {
		t.Fatalf("%s: %v, %v. Run `make manifests-check`, which builds %[1]s", program, err, failure)
	}
}

// Package manifests checks what the operator is installed by, and what it makes of Echoes, by the
// rules of others. docs/manifest-rules.md has the list of them.
package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
)

const (
	root      = "../../.."
	namespace = "echo-operator-system"
	document  = root + "/docs/manifest-rules.md"
	csvFile   = root + "/bundle/manifests/echo-operator.clusterserviceversion.yaml"
	// ours is the engine of the checks that are written here.
	ours = "own"
)

// set is what is applied together, and by rule looked at together.
type set struct {
	name    string
	objects []client.Object
}

// finding is an object that breaks a rule.
type finding struct{ engine, rule, object string }

// waiver says why a finding is to stay. Rule and objects, which are <set>/<kind>/<name>, are
// patterns, as path.Match takes them.
type waiver struct {
	Engine, Rule string
	Objects      []string
	Reason       string
}

// engines look at a set, each by rules of its own.
var engines = map[string]func(*testing.T, set) []finding{
	ours:         byOwnChecks,
	"kube-score": byKubeScore,
	"kubesec":    byKubesec,
}

func TestManifestsKeepTheRules(t *testing.T) {
	var waivers []waiver
	if err := yaml.UnmarshalStrict(read(t, "waivers.yaml"), &waivers); err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{}
	for _, s := range sets(t) {
		for _, look := range engines {
			for _, f := range look(t, s) {
				waived := false
				for _, w := range waivers {
					for _, pattern := range w.Objects {
						if w.Engine == f.engine && matches(t, w.Rule, f.rule) && matches(t, pattern, f.object) {
							needed[w.Engine+w.Rule+pattern] = true
							waived = true
						}
					}
				}
				if !waived {
					t.Errorf("%s: %s breaks %s", f.object, f.engine, f.rule)
				}
			}
		}
	}
	for _, w := range waivers {
		if len(w.Objects) == 0 || len(w.Reason) < 20 {
			t.Errorf("the waiver of %s by %s is for nothing, or for no reason", w.Rule, w.Engine)
		}
		for _, pattern := range w.Objects {
			if !needed[w.Engine+w.Rule+pattern] {
				t.Errorf("%s breaks %s of %s no longer: take the waiver away", pattern, w.Rule, w.Engine)
			}
		}
	}
}

func matches(t *testing.T, pattern, name string) bool {
	t.Helper()
	matched, err := path.Match(pattern, name)
	if err != nil {
		t.Fatal(err)
	}
	return matched
}

// Images name their user themselves: the operator's pod leaves it to the cluster.
func TestImagesRunAsAHighUser(t *testing.T) {
	users := regexp.MustCompile(`(?m)^USER (\d+):(\d+)$`).FindAllStringSubmatch(string(read(t, root+"/Dockerfile")), -1)
	if len(users) < 3 {
		t.Errorf("%d images name a user by number, want all three", len(users))
	}
	for _, user := range users {
		for _, id := range user[1:] {
			if n, err := strconv.Atoi(id); err != nil || n < 10000 {
				t.Errorf("%s: a user or a group below 10000", user[0])
			}
		}
	}
}

// The document says how each rule is kept: it has to know the checks and the waivers.
func TestTheDocumentNamesEveryCheck(t *testing.T) {
	text := string(read(t, document))
	var names []string
	for _, c := range checks {
		names = append(names, c.name)
		if !strings.Contains(text, ours+" `"+c.name+"`") {
			t.Errorf("%s does not say what the check %q is for", document, c.name)
		}
	}
	for _, match := range regexp.MustCompile(ours+" `([^`]+)`").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, match[1]) {
			t.Errorf("%s names a check %q, which there is not", document, match[1])
		}
	}
	for _, match := range regexp.MustCompile("`([^` ]+_test\\.go): ([^`]+)`").FindAllStringSubmatch(text, -1) {
		if source := string(read(t, root+"/"+match[1])); !strings.Contains(source, "func "+match[2]+"(") {
			t.Errorf("%s has no test %q", match[1], match[2])
		}
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// sets returns everything that the rules are for: the operator as kustomize and as OLM install it,
// the children in the golden files, and those of the samples.
func sets(t *testing.T) []set {
	t.Helper()
	output, err := exec.Command("kustomize", "build", root+"/config/default").Output()
	if err != nil {
		t.Fatalf("kustomize: %v; `make manifests-check` builds it", err)
	}
	operator := set{"operator", decode(t, output)}
	all := []set{operator, bundle(t)}
	for _, folder := range list(t, root+"/internal/children/testdata/*") {
		if filepath.Base(folder) != "fuzz" {
			all = append(all, golden(t, folder))
		}
	}
	image := serverImage(t, operator)
	for _, file := range list(t, root+"/config/samples/*.yaml") {
		if filepath.Base(file) != "kustomization.yaml" {
			all = append(all, sample(t, file, image))
		}
	}
	if len(all) < 12 {
		t.Errorf("only %d sets of manifests were found", len(all))
	}
	return all
}

func list(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing is %s: %v", pattern, err)
	}
	return files
}

// bundle returns what OLM makes of the bundle, in the namespace where it installs it.
func bundle(t *testing.T) set {
	t.Helper()
	s := set{name: "bundle"}
	for _, file := range list(t, root+"/bundle/manifests/*.yaml") {
		if file != csvFile {
			s.objects = append(s.objects, decode(t, read(t, file))...)
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
	if err := yaml.Unmarshal(read(t, csvFile), &csv); err != nil {
		t.Fatal(err)
	}
	for _, deployment := range csv.Spec.Install.Spec.Deployments {
		s.objects = append(s.objects,
			&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: deployment.Name, Labels: deployment.Label}, Spec: deployment.Spec},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: deployment.Spec.Template.Spec.ServiceAccountName}})
	}
	complete(t, s)
	for _, object := range s.objects {
		if isNamespaced(object) {
			object.SetNamespace(namespace)
		}
	}
	return s
}

// golden returns the children in a folder of golden files, which have all but kind and name.
func golden(t *testing.T, folder string) set {
	t.Helper()
	deployment, service, budget := &appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}
	for file, object := range map[string]client.Object{
		"deployment.yaml": deployment, "service.yaml": service, "poddisruptionbudget.yaml": budget,
	} {
		if err := yaml.UnmarshalStrict(read(t, filepath.Join(folder, file)), object); err != nil {
			t.Fatal(err)
		}
	}
	return family(t, "golden-"+filepath.Base(folder), deployment.Labels[children.EchoLabel], deployment, service, budget)
}

// sample returns the children of an Echo in config/samples.
func sample(t *testing.T, file, image string) set {
	t.Helper()
	// The defaults are the API server's.
	echo := &echov1.Echo{Spec: echov1.EchoSpec{Replicas: 1, Port: 80, TargetPort: 5678}}
	if err := yaml.UnmarshalStrict(read(t, file), echo); err != nil {
		t.Fatal(err)
	}
	deployment, service, budget := &appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}
	children.Deployment(deployment, echo, image)
	children.Service(service, echo)
	children.PodDisruptionBudget(budget, echo)
	return family(t, "sample-"+echo.Name, echo.Name, deployment, service, budget)
}

// family returns the children of one Echo, as far as it has them.
func family(t *testing.T, name, echoName string, deployment *appsv1.Deployment, service *corev1.Service, budget *policyv1.PodDisruptionBudget) set {
	t.Helper()
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: echoName}, Spec: echov1.EchoSpec{Replicas: *deployment.Spec.Replicas}}
	s := set{name, []client.Object{deployment, service}}
	if children.WantsPodDisruptionBudget(echo) {
		s.objects = append(s.objects, budget)
	}
	for _, object := range s.objects {
		object.SetName(children.Name(echo))
		object.SetNamespace("op-demo")
	}
	return complete(t, s)
}

// serverImage returns the image of an Echo that names none.
func serverImage(t *testing.T, operator set) string {
	t.Helper()
	for _, deployment := range of[*appsv1.Deployment](operator) {
		for _, env := range deployment.Spec.Template.Spec.Containers[0].Env {
			if env.Name == "RELATED_IMAGE_HTTP_ECHO" {
				return env.Value
			}
		}
	}
	t.Fatal("the operator does not know the image of the server")
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

// decode reads objects, and fails at a field that their kinds do not have.
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
	return complete(t, set{objects: objects}).objects
}

// complete gives every object its kind.
func complete(t *testing.T, s set) set {
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

// byKubeScore runs every rule of kube-score, whatever annotations say.
func byKubeScore(t *testing.T, s set) []finding {
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
		"--disable-ignore-checks-annotations", "--kubernetes-version="+oldest(t), "-")
	var found []finding
	looks := 0
	for _, object := range report {
		for _, c := range object.Checks {
			if !c.Skipped {
				looks++
				if c.Grade < 10 {
					found = append(found, finding{"kube-score", c.Check.ID, s.nameOf(object.TypeMeta.Kind, object.ObjectMeta.Name)})
				}
			}
		}
	}
	if looks < 20 {
		t.Errorf("%s: kube-score looked only %d times", s.name, looks)
	}
	return found
}

// byKubesec runs every rule of kubesec; those that give points count as broken where they give none.
func byKubesec(t *testing.T, s set) []finding {
	t.Helper()
	// Its schemas are on the network; the API server judges the manifests elsewhere. This takes all.
	anything := filepath.Join(t.TempDir(), "anything.json")
	if err := os.WriteFile(anything, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	var found []finding
	for _, deployment := range of[*appsv1.Deployment](s) {
		var report []struct {
			Valid   bool
			Message string
			Scoring struct{ Critical, Advise, Passed []struct{ ID string } }
		}
		run(t, []client.Object{deployment}, &report, "kubesec", "scan", "--schema-location="+anything, "-")
		scoring := report[0].Scoring
		if !report[0].Valid || len(scoring.Advise)+len(scoring.Passed) < 10 {
			t.Errorf("%s: kubesec did not look: %s", s.name, report[0].Message)
		}
		for _, rule := range slices.Concat(scoring.Critical, scoring.Advise) {
			found = append(found, finding{"kubesec", rule.ID, s.nameOf("Deployment", deployment.Name)})
		}
	}
	return found
}

// run has a program read objects, and reads what it prints. Its exit code only says whether it found
// something.
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
		t.Fatalf("%s: %v, %v; `make manifests-check` builds it", program, err, failure)
	}
}

// oldest returns the oldest Kubernetes that the operator is for.
func oldest(t *testing.T) string {
	t.Helper()
	version := regexp.MustCompile(`(?m)^  minKubeVersion: (\d+\.\d+)`).FindSubmatch(read(t, csvFile))
	if version == nil {
		t.Fatal("no minKubeVersion in the bundle")
	}
	return "v" + string(version[1])
}

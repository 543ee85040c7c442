package bundle

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// What nobody should find in the rights of an operator as small as this. That it uses all
// that it has, the integration suite checks.
func TestTheOperatorMayDoNothingThatIsGrave(t *testing.T) {
	csv := load(t, csvFile)[0]
	roles := boundRoles(t)
	if len(roles) != 3 {
		t.Fatalf("%d roles are bound to the operator's account, want 3", len(roles))
	}
	for _, kind := range []string{"permissions", "clusterPermissions"} {
		roles = append(roles, list(t, at(t, csv, "spec", "install", "spec", kind).([]any)...)...)
	}
	for _, role := range roles {
		for _, rule := range rulesOf(t, role) {
			if grave := graveness(rule); grave != "" {
				t.Errorf("%s in %+v", grave, rule)
			}
		}
	}
	for grave, rule := range map[string]rbacv1.PolicyRule{
		"a wildcard":               {APIGroups: []string{"*"}, Resources: []string{"echoes"}, Verbs: []string{"get"}},
		"a grave verb: *":          {Resources: []string{"pods"}, Verbs: []string{"*"}},
		"a grave verb: bind":       {Resources: []string{"clusterroles"}, Verbs: []string{"bind"}},
		"a grave right: secrets":   {Resources: []string{"secrets"}, Verbs: []string{"get"}},
		"a grave right: pods/exec": {Resources: []string{"pods/exec"}, Verbs: []string{"create"}},
	} {
		if got := graveness(rule); got != grave {
			t.Errorf("%+v: got %q, want %q", rule, got, grave)
		}
	}
}

func graveness(rule rbacv1.PolicyRule) string {
	for _, verb := range rule.Verbs {
		if slices.Contains([]string{"*", "escalate", "bind", "impersonate", "deletecollection", "approve", "sign"}, verb) {
			return "a grave verb: " + verb
		}
	}
	if slices.ContainsFunc(slices.Concat(rule.APIGroups, rule.Resources, rule.NonResourceURLs), func(s string) bool { return strings.Contains(s, "*") }) {
		return "a wildcard"
	}
	for _, resource := range rule.Resources {
		if strings.HasPrefix(resource, "pods/") || strings.HasPrefix(resource, "nodes") || strings.HasPrefix(resource, "serviceaccounts") ||
			slices.Contains([]string{"secrets", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}, resource) {
			return "a grave right: " + resource
		}
	}
	return ""
}

// boundRoles returns the roles in config/rbac that a binding gives to the operator's account.
func boundRoles(t *testing.T) []map[string]any {
	t.Helper()
	files, err := filepath.Glob(root + "/config/rbac/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	byName, bound := map[any]map[string]any{}, []any{}
	for _, file := range files {
		for _, object := range load(t, file) {
			switch kind, _ := object["kind"].(string); kind {
			case "Role", "ClusterRole":
				byName[at(t, object, "metadata", "name")] = object
			case "RoleBinding", "ClusterRoleBinding":
				for _, subject := range list(t, object["subjects"].([]any)...) {
					if subject["name"] == "controller-manager" {
						bound = append(bound, at(t, object, "roleRef", "name"))
					}
				}
			}
		}
	}
	var roles []map[string]any
	for _, name := range bound {
		if byName[name] == nil {
			t.Fatalf("no role %v", name)
		}
		roles = append(roles, byName[name])
	}
	return roles
}

func rulesOf(t *testing.T, role map[string]any) []rbacv1.PolicyRule {
	t.Helper()
	var typed rbacv1.Role
	convert(t, role, &typed)
	if len(typed.Rules) == 0 {
		t.Fatalf("no rules in %v", role)
	}
	return typed.Rules
}

func convert(t *testing.T, object map[string]any, typed any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		t.Fatal(err)
	}
}

func TestNamespacesEnforceTheRestrictedStandard(t *testing.T) {
	const label = "pod-security.kubernetes.io/enforce"
	var found []string
	walk(t, root+"/config", ".yaml", func(file string, text string) {
		if !strings.Contains(text, "kind: Namespace\n") {
			return
		}
		for _, object := range load(t, file) {
			if object["kind"] != "Namespace" {
				continue
			}
			found = append(found, filepath.Base(filepath.Dir(file)))
			if got := at(t, object, "metadata", "labels").(map[string]any)[label]; got != "restricted" {
				t.Errorf("%s: %s is %v", file, label, got)
			}
		}
	})
	same(t, "namespaces in", found, []string{"manager", "olm", "olm-v1"})

	helper := root + "/test/e2e/internal/cluster/cluster.go"
	walk(t, root+"/test/e2e", ".go", func(file string, text string) {
		if file == helper {
			if !strings.Contains(text, `"`+label+`=restricted"`) {
				t.Errorf("%s makes namespaces without %s", file, label)
			}
		} else if regexp.MustCompile(`"create", "(namespace|ns)"`).MatchString(text) {
			t.Errorf("%s makes a namespace by itself: NewNamespace makes one that enforces the restricted standard", file)
		}
	})
}

func walk(t *testing.T, folder, extension string, visit func(file, text string)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != extension {
			return err
		}
		text, err := os.ReadFile(file)
		visit(file, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// No cluster in these tests enforces policies: so at least it is checked that this one says
// what it should.
func TestTheNetworkPolicyIsThatOfTheOperator(t *testing.T) {
	var policy networkingv1.NetworkPolicy
	convert(t, load(t, root+"/config/network-policy/controller_manager.yaml")[0], &policy)
	var manager appsv1.Deployment
	convert(t, load(t, root+"/config/manager/manager.yaml")[0], &manager)
	var underOLM appsv1.DeploymentSpec
	convert(t, at(t, list(t, at(t, load(t, csvFile)[0], "spec", "install", "spec", "deployments").([]any)...)[0], "spec").(map[string]any), &underOLM)

	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	for what, template := range map[string]corev1.PodTemplateSpec{"manager.yaml": manager.Spec.Template, "the bundle": underOLM.Template} {
		if selector.Empty() || !selector.Matches(labels.Set(template.Labels)) {
			t.Errorf("%s: %s does not select %v", what, selector, template.Labels)
		}
	}
	if policy.Namespace != manager.Namespace {
		t.Errorf("it is in %s, and the operator in %s", policy.Namespace, manager.Namespace)
	}
	if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		t.Errorf("it speaks of %v alone", policy.Spec.PolicyTypes)
	}

	var in, out []string
	for _, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("%+v lets everybody in, or to every port", rule)
		}
		in = append(in, ports(rule.Ports)...)
	}
	for _, rule := range policy.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Errorf("%+v lets out to every port", rule)
		}
		out = append(out, ports(rule.Ports)...)
	}
	same(t, "ports in", in, []string{"TCP metrics"})
	// API servers listen on these; DNS on 53.
	same(t, "ports out", out, []string{"TCP 443", "TCP 6443", "TCP 8443", "TCP 53", "UDP 53"})
	if !slices.ContainsFunc(manager.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" }) {
		t.Error("the operator has no port of the name metrics")
	}
}

func ports(all []networkingv1.NetworkPolicyPort) []string {
	var named []string
	for _, port := range all {
		end := ""
		if port.EndPort != nil {
			end = " and more"
		}
		named = append(named, string(*port.Protocol)+" "+port.Port.String()+end)
	}
	return named
}

var (
	threat   = regexp.MustCompile(`(?m)^\| .* \|$`)
	testName = regexp.MustCompile("`([^` ]+_test\\.go): ([^`]+)`")
)

// A threat model is worth what its tests are: each threat names one that exists, or says
// that there is none.
func TestEveryThreatNamesItsTest(t *testing.T) {
	text, err := os.ReadFile(root + "/docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	threats := 0
	for _, row := range threat.FindAllString(string(text), -1) {
		if strings.HasSuffix(row, "| shown by |") {
			continue
		}
		threats++
		tests := testName.FindAllStringSubmatch(row, -1)
		if len(tests) != strings.Count(row, "_test.go") || (len(tests) == 0 && !strings.Contains(row, "**No test**")) {
			t.Errorf("no test, and no word that there is none, or one that is not written as `file: name`: %s", row)
		}
		for _, test := range tests {
			source, err := os.ReadFile(filepath.Join(root, test[1]))
			if err != nil {
				t.Error(err)
			} else if !strings.Contains(string(source), "func "+test[2]+"(") && !strings.Contains(string(source), `"`+test[2]) {
				t.Errorf("%s has no test %q", test[1], test[2])
			}
		}
	}
	if threats < 20 {
		t.Errorf("%d threats: the document is not read as it is written", threats)
	}
}

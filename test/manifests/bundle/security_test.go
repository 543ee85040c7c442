package bundle

import (
	"path/filepath"
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

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// The integration suite tests that the operator uses every permission that it has.
func TestOperatorHasNoDangerousPermissions(t *testing.T) {
	csv := repo.Load(t, repo.CSVFile)[0]
	roles := boundRoles(t)
	if len(roles) != 3 {
		t.Fatalf("config/rbac binds %d roles to the operator's service account, want 3", len(roles))
	}
	for _, field := range []string{"permissions", "clusterPermissions"} {
		roles = append(roles, repo.ObjectsAt(t, csv, "spec", "install", "spec", field)...)
	}
	for _, role := range roles {
		for _, rule := range rulesOf(t, role) {
			if danger := dangerIn(rule); danger != "" {
				t.Errorf("RBAC rule %+v has %s", rule, danger)
			}
		}
	}
	for danger, rule := range map[string]rbacv1.PolicyRule{
		"a wildcard":                   {APIGroups: []string{"*"}, Resources: []string{"echoes"}, Verbs: []string{"get"}},
		"dangerous verb *":             {Resources: []string{"pods"}, Verbs: []string{"*"}},
		"dangerous verb bind":          {Resources: []string{"clusterroles"}, Verbs: []string{"bind"}},
		"dangerous resource secrets":   {Resources: []string{"secrets"}, Verbs: []string{"get"}},
		"dangerous resource pods/exec": {Resources: []string{"pods/exec"}, Verbs: []string{"create"}},
	} {
		if got := dangerIn(rule); got != danger {
			t.Errorf("RBAC rule %+v: got %q, want %q", rule, got, danger)
		}
	}
}

// dangerIn names what is dangerous in a rule, or returns "".
func dangerIn(rule rbacv1.PolicyRule) string {
	for _, verb := range rule.Verbs {
		if slices.Contains([]string{"*", "escalate", "bind", "impersonate", "deletecollection", "approve", "sign"}, verb) {
			return "dangerous verb " + verb
		}
	}
	if slices.ContainsFunc(slices.Concat(rule.APIGroups, rule.Resources, rule.NonResourceURLs), func(s string) bool { return strings.Contains(s, "*") }) {
		return "a wildcard"
	}
	for _, resource := range rule.Resources {
		if strings.HasPrefix(resource, "pods/") || strings.HasPrefix(resource, "nodes") || strings.HasPrefix(resource, "serviceaccounts") ||
			slices.Contains([]string{"secrets", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}, resource) {
			return "dangerous resource " + resource
		}
	}
	return ""
}

// boundRoles returns the roles that config/rbac binds to the operator's service account.
func boundRoles(t *testing.T) []repo.Object {
	t.Helper()
	byName, bound := map[any]repo.Object{}, []any{}
	for _, file := range repo.Glob(t, repo.Root+"/config/rbac/*.yaml") {
		for _, object := range repo.Load(t, file) {
			switch kind, _ := object["kind"].(string); kind {
			case "Role", "ClusterRole":
				byName[repo.At(t, object, "metadata", "name")] = object
			case "RoleBinding", "ClusterRoleBinding":
				for _, subject := range repo.ObjectsAt(t, object, "subjects") {
					if subject["name"] == "controller-manager" {
						bound = append(bound, repo.At(t, object, "roleRef", "name"))
					}
				}
			}
		}
	}
	var roles []repo.Object
	for _, name := range bound {
		if byName[name] == nil {
			t.Fatalf("config/rbac binds role %v, which it does not contain", name)
		}
		roles = append(roles, byName[name])
	}
	return roles
}

func rulesOf(t *testing.T, role repo.Object) []rbacv1.PolicyRule {
	t.Helper()
	var typed rbacv1.Role
	convert(t, role, &typed)
	if len(typed.Rules) == 0 {
		t.Fatalf("role %v has no rules", role)
	}
	return typed.Rules
}

func convert(t *testing.T, object repo.Object, typed any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		t.Fatal(err)
	}
}

func TestNamespacesEnforceRestrictedPodSecurity(t *testing.T) {
	const label = "pod-security.kubernetes.io/enforce"
	var found []string
	repo.Walk(t, repo.Root+"/config", ".yaml", func(file string, text string) {
		if !strings.Contains(text, "kind: Namespace\n") {
			return
		}
		for _, object := range repo.Load(t, file) {
			if object["kind"] != "Namespace" {
				continue
			}
			found = append(found, filepath.Base(filepath.Dir(file)))
			if got := repo.At(t, object, "metadata", "labels").(repo.Object)[label]; got != "restricted" {
				t.Errorf("%s: label %s is %v, want restricted", file, label, got)
			}
		}
	})
	repo.Same(t, "folders of config/ that contain a namespace", repo.Distinct(found), []string{"manager", "olm", "olm-v1"})
}

// The local cluster does not enforce network policies, so this test checks the content only.
func TestNetworkPolicyMatchesOperator(t *testing.T) {
	var policy networkingv1.NetworkPolicy
	convert(t, repo.Load(t, repo.Root+"/config/network-policy/controller_manager.yaml")[0], &policy)
	var manager appsv1.Deployment
	convert(t, repo.Load(t, repo.Root+"/config/manager/manager.yaml")[0], &manager)
	var underOLM appsv1.DeploymentSpec
	convert(t, repo.At(t, repo.ObjectsAt(t, repo.Load(t, repo.CSVFile)[0], "spec", "install", "spec", "deployments")[0], "spec").(repo.Object), &underOLM)

	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	for source, template := range map[string]corev1.PodTemplateSpec{"manager.yaml": manager.Spec.Template, "the bundle": underOLM.Template} {
		if selector.Empty() || !selector.Matches(labels.Set(template.Labels)) {
			t.Errorf("NetworkPolicy selector %s does not match the pod labels in %s: %v", selector, source, template.Labels)
		}
	}
	if policy.Namespace != manager.Namespace {
		t.Errorf("NetworkPolicy is in namespace %s, want %s as the operator", policy.Namespace, manager.Namespace)
	}
	if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) || !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
		t.Errorf("NetworkPolicy policyTypes is %v, want Ingress and Egress", policy.Spec.PolicyTypes)
	}

	var ingress, egress []string
	for _, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("ingress rule %+v allows every source or every port", rule)
		}
		ingress = append(ingress, ports(rule.Ports)...)
	}
	for _, rule := range policy.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Errorf("egress rule %+v allows every port", rule)
		}
		egress = append(egress, ports(rule.Ports)...)
	}
	repo.Same(t, "ingress ports", repo.Distinct(ingress), []string{"TCP metrics"})
	// API servers listen on 443, 6443 or 8443, DNS servers on 53.
	repo.Same(t, "egress ports", repo.Distinct(egress), []string{"TCP 443", "TCP 6443", "TCP 8443", "TCP 53", "UDP 53"})
	if !slices.ContainsFunc(manager.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == "metrics" }) {
		t.Error("the operator's container has no port named metrics")
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

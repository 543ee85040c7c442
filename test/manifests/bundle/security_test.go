package bundle

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// dangerous matches API groups, resources, verbs and URLs that the operator must not have.
var dangerous = regexp.MustCompile(`[*]|^(escalate|bind|impersonate|deletecollection|approve|sign|secrets` +
	`|pods/.*|nodes.*|serviceaccounts.*|(cluster)?role(binding)?s|.*webhookconfigurations)$`)

// granted returns the rules of every role that OLM binds to the operator. operator-sdk collects them from config/rbac.
func granted(t *testing.T) (rules []rbacv1.PolicyRule) {
	t.Helper()
	strategy := loadCSV(t).Spec.InstallStrategy.StrategySpec
	for _, permission := range slices.Concat(strategy.Permissions, strategy.ClusterPermissions) {
		rules = append(rules, permission.Rules...)
	}
	return rules
}

// The integration suite tests that the operator uses every permission that it has.
func TestOperatorHasNoDangerousPermissions(t *testing.T) {
	for _, rule := range granted(t) {
		if slices.ContainsFunc(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs), dangerous.MatchString) {
			t.Errorf("RBAC rule %+v is dangerous", rule)
		}
	}
}

func TestNamespacesEnforceRestrictedPodSecurity(t *testing.T) {
	const label = "pod-security.kubernetes.io/enforce"
	for _, folder := range []string{"manager", "olm", "olm-v1"} {
		var namespace corev1.Namespace
		decode(t, repo.Read(t, repo.Root+"/config/"+folder+"/namespace.yaml"), &namespace)
		if got := namespace.Labels[label]; got != "restricted" {
			t.Errorf("config/%s: label %s is %q, want restricted", folder, label, got)
		}
	}
}

// The local cluster does not enforce network policies, so this test checks the content only.
func TestNetworkPolicyMatchesOperator(t *testing.T) {
	var policy networkingv1.NetworkPolicy
	decode(t, repo.Read(t, repo.Root+"/config/network-policy/controller_manager.yaml"), &policy)
	var manager appsv1.Deployment
	decode(t, repo.Read(t, repo.Root+"/config/manager/manager.yaml"), &manager)
	underOLM := loadCSV(t).Spec.InstallStrategy.StrategySpec.DeploymentSpecs[0].Spec.Template

	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	if err != nil {
		t.Fatal(err)
	}
	for source, template := range map[string]corev1.PodTemplateSpec{"manager.yaml": manager.Spec.Template, "the bundle": underOLM} {
		if selector.Empty() || !selector.Matches(labels.Set(template.Labels)) {
			t.Errorf("NetworkPolicy selector %s does not match the pod labels in %s: %v", selector, source, template.Labels)
		}
	}
	var allowed []string
	for _, rule := range policy.Spec.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) == 0 {
			t.Errorf("ingress rule %+v allows every source or every port", rule)
		}
		allowed = append(allowed, ports("from", rule.Ports)...)
	}
	for _, rule := range policy.Spec.Egress {
		if len(rule.Ports) == 0 {
			t.Errorf("egress rule %+v allows every port", rule)
		}
		allowed = append(allowed, ports("to", rule.Ports)...)
	}
	for _, kind := range policy.Spec.PolicyTypes {
		allowed = append(allowed, string(kind))
	}
	// API servers listen on 443, 6443 or 8443, DNS servers on 53.
	repo.Same(t, "what the NetworkPolicy restricts and allows", allowed,
		[]string{"Egress", "Ingress", "from TCP metrics", "to TCP 443", "to TCP 6443", "to TCP 8443", "to TCP 53", "to UDP 53"})
	if policy.Namespace != manager.Namespace {
		t.Errorf("NetworkPolicy is in namespace %s, want %s as the operator", policy.Namespace, manager.Namespace)
	}
}

func ports(direction string, all []networkingv1.NetworkPolicyPort) (named []string) {
	for _, port := range all {
		text := fmt.Sprint(direction, " ", *port.Protocol, " ", port.Port)
		if port.EndPort != nil {
			text += " and more"
		}
		named = append(named, text)
	}
	return named
}

// Package bundle tests the content of the generated bundle that no validator checks.
package bundle

import (
	"regexp"
	"slices"
	"testing"

	"github.com/operator-framework/api/pkg/operators/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// dangerous matches API groups, resources, verbs and URLs that the operator must not have.
var dangerous = regexp.MustCompile(`[*]|^(escalate|bind|impersonate|deletecollection|approve|sign|secrets` +
	`|pods/.*|nodes.*|serviceaccounts.*|(cluster)?role(binding)?s|.*webhookconfigurations)$`)

// The integration suite tests that the operator uses every permission that it has.
func TestOperatorHasNoDangerousPermissions(t *testing.T) {
	var csv v1alpha1.ClusterServiceVersion
	if err := yaml.UnmarshalStrict(repo.Read(t, repo.Root+"/bundle/manifests/echo-operator.clusterserviceversion.yaml"), &csv); err != nil {
		t.Fatal(err)
	}
	strategy := csv.Spec.InstallStrategy.StrategySpec
	for _, permission := range slices.Concat(strategy.Permissions, strategy.ClusterPermissions) {
		for _, rule := range permission.Rules {
			if slices.ContainsFunc(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs), dangerous.MatchString) {
				t.Errorf("RBAC rule %+v is dangerous", rule)
			}
		}
	}
}

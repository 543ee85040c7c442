package crdcompat

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/crdify/pkg/config"
	"sigs.k8s.io/crdify/pkg/runner"
	"sigs.k8s.io/crdify/pkg/validations"
	"sigs.k8s.io/crdify/pkg/validations/property"
	"sigs.k8s.io/crdify/pkg/validators/version"
)

// strictness is the configuration of OLM v1 (operator-controller v1.11): every rule and every change
// without a rule is an error, except changed descriptions and new enum values.
var strictness = config.Config{
	Conversion:           config.ConversionPolicyIgnore,
	UnhandledEnforcement: config.EnforcementPolicyError,
	Validations: []config.ValidationConfig{
		{Name: "description", Enforcement: config.EnforcementPolicyNone},
		{Name: "enum", Enforcement: config.EnforcementPolicyError,
			Configuration: map[string]any{"additionPolicy": property.AdditionPolicyAllow}},
	},
}

// preflight returns the reasons for which OLM v1 would reject the upgrade of a CRD.
func preflight(old, replacement *apiextensionsv1.CustomResourceDefinition) ([]string, error) {
	rules, err := runner.New(&strictness, runner.DefaultRegistry())
	if err != nil {
		return nil, err
	}
	results := rules.Run(old, replacement)

	var problems []string
	report := func(where string, results []validations.ComparisonResult) {
		for _, result := range results {
			for _, problem := range result.Errors {
				problems = append(problems, fmt.Sprintf("OLM v1 preflight rejects %s (rule %s): %s", where, result.Name, problem))
			}
		}
	}
	report("the CRD", results.CRDValidation)
	for _, versions := range [][]version.VersionedPropertyComparisonResult{results.SameVersionValidation, results.ServedVersionValidation} {
		for _, version := range versions {
			for _, field := range version.PropertyComparisons {
				report(version.Version+" "+field.Property, field.ComparisonResults)
			}
		}
	}
	return problems, nil
}

// Command validate-bundle runs the validators of operator-sdk v1.36 on a bundle directory. The
// OperatorHub pipeline uses that version. Warnings count as errors. tools/operator-sdk-1.36.mod
// selects the older version of the validators.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// validators lists the validators that `operator-sdk bundle validate` runs by default and with
// name=operatorhub, name=community and suite=operatorframework, except those that pull images.
var validators = interfaces.Validators{
	validation.ClusterServiceVersionValidator,
	validation.CustomResourceDefinitionValidator,
	validation.BundleValidator,
	validation.ObjectValidator,
	validation.OperatorHubValidator, //nolint:staticcheck // deprecated, but the pipeline uses it
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
	validation.CommunityOperatorValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: validate-bundle <bundle directory>")
		os.Exit(2)
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	objects := append(bundle.ObjectsToValidate(), map[string]string{"k8s-version": "1.32", "index-path": "bundle.Dockerfile"})
	passed := true
	for _, result := range validators.Validate(objects...) {
		for _, problem := range append(result.Errors, result.Warnings...) {
			// The validator prints this warning for every bundle.
			if strings.Contains(problem.Error(), `The "operatorhub" validator is deprecated`) {
				continue
			}
			fmt.Println(problem)
			passed = false
		}
	}
	if !passed {
		os.Exit(1)
	}
}

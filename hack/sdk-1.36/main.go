// Command sdk-1.36 runs the validators of operator-sdk v1.36, which the community's
// pipeline uses, on a bundle. Warnings are errors.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	interfaces "github.com/operator-framework/api/pkg/validation/interfaces"
)

// validators are those of `bundle validate`, and of its options name=operatorhub,
// name=community and suite=operatorframework, as far as they look at no image.
var validators = interfaces.Validators{
	validation.ClusterServiceVersionValidator,
	validation.CustomResourceDefinitionValidator,
	validation.BundleValidator,
	validation.ObjectValidator,
	validation.OperatorHubValidator, //nolint:staticcheck // deprecated, and used by the pipeline
	validation.OperatorHubV2Validator,
	validation.StandardCapabilitiesValidator,
	validation.StandardCategoriesValidator,
	validation.CommunityOperatorValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sdk-1.36 <bundle directory>")
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
			// This validator says so of itself, whatever the bundle.
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

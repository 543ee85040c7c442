package crdcompat

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// server processes objects of one version of a CRD with the code of the API server.
type server struct {
	schema   *schema.Structural
	strategy interface {
		Validate(context.Context, runtime.Object) field.ErrorList
		ValidateUpdate(ctx context.Context, object, old runtime.Object) field.ErrorList
	}
}

func newServer(crd *apiextensionsv1.CustomResourceDefinition, version string) (*server, error) {
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(
		crd.DeepCopy(), internal, nil); err != nil {
		return nil, err
	}
	props, err := apiextensions.GetSchemaForVersion(internal, version)
	if err != nil {
		return nil, err
	}
	if props == nil || props.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("version %s has no schema", version)
	}
	subresources, err := apiextensions.GetSubresourcesForVersion(internal, version)
	if err != nil {
		return nil, err
	}
	if subresources == nil {
		subresources = &apiextensions.CustomResourceSubresources{}
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	kind := runtimeschema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind}
	strategy := customresource.NewStrategy(nil, true, kind, validator, nil, structural, subresources.Status, subresources.Scale, nil)
	return &server{schema: structural, strategy: strategy}, nil
}

// decode returns an object as the API server decodes it from a request or from the storage: with
// defaults and without fields that the schema does not contain. The namespace replaces the one of the
// request.
func (s *server) decode(object map[string]any) map[string]any {
	object = runtime.DeepCopyJSON(object)
	object["metadata"].(map[string]any)["namespace"] = "default"
	defaulting.Default(object, s.schema)
	pruning.Prune(object, s.schema, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.schema)
	return object
}

// validate returns the reasons for which the server rejects a decoded object.
func (s *server) validate(object map[string]any) field.ErrorList {
	errs := s.strategy.Validate(context.Background(), &unstructured.Unstructured{Object: object})
	for _, err := range errs {
		err.Field = strings.TrimPrefix(err.Field, "<nil>.")
	}
	return errs
}

// validateUpdate returns the reasons for which the server rejects the update of a stored object.
func (s *server) validateUpdate(object, stored map[string]any) field.ErrorList {
	return s.strategy.ValidateUpdate(context.Background(), &unstructured.Unstructured{Object: object}, &unstructured.Unstructured{Object: stored})
}

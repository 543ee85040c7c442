package crdcompat

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// server processes Echoes with the code of the API server.
type server struct {
	schema   *schema.Structural
	strategy interface {
		Validate(context.Context, runtime.Object) field.ErrorList
	}
}

func newServer(crd *apiextensionsv1.CustomResourceDefinition) (*server, error) {
	internal := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), internal, nil); err != nil {
		return nil, err
	}
	props, err := apiextensions.GetSchemaForVersion(internal, values.Kind.Version)
	if err != nil {
		return nil, err
	}
	if props == nil || props.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("version %s has no schema", values.Kind.Version)
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	if err != nil {
		return nil, err
	}
	return &server{structural, customresource.NewStrategy(nil, true, values.Kind, validator, nil, structural, nil, nil, nil)}, nil
}

// decode returns an object as the API server decodes it from a request or from the storage: with
// defaults and without fields that the schema does not contain.
func (s *server) decode(object map[string]any) map[string]any {
	object = runtime.DeepCopyJSON(object)
	object["metadata"].(map[string]any)["namespace"] = "default" //nolint:forcetypeassert // Generated Echoes have metadata.
	defaulting.Default(object, s.schema)
	pruning.Prune(object, s.schema, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.schema)
	return object
}

// validate returns the reasons for which the server rejects a decoded object.
func (s *server) validate(object map[string]any) field.ErrorList {
	return s.strategy.Validate(context.Background(), &unstructured.Unstructured{Object: object})
}

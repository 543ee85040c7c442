// Package openshift imitates how OpenShift admits pods, with admission policies.
package openshift

import (
	"bytes"
	_ "embed" // For the policies.
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Policies is the manifest of the policies. They apply to namespaces with Labels and Annotations.
//
//go:embed restricted-v2.yaml
var Policies []byte

var (
	// Labels select the namespaces of the policies.
	Labels = map[string]string{"openshift.io/scc": "restricted-v2"}
	// Annotations are the user range and the SELinux level, which OpenShift assigns to a namespace.
	Annotations = map[string]string{"openshift.io/sa.scc.uid-range": "1000680000/10000", "openshift.io/sa.scc.mcs": "s0:c26,c15"}
)

// FirstUser is the first user of the range.
const FirstUser = 1000680000

// Objects returns the policies and their bindings.
func Objects() (objects []client.Object, err error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(Policies), len(Policies))
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err != nil {
			if errors.Is(err, io.EOF) {
				return objects, nil
			}
			return nil, err
		}
		objects = append(objects, object)
	}
}

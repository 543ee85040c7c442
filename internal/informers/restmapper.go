package informers

import (
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// RESTMapper maps the kinds that the operator uses without discovery. So the setup makes no API
// calls, and only the cache waits for an unavailable API server or a missing CRD.
func RESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range append(cachedKinds(),
		children.Kind{ObjectKind: "ReplicaSet", Resource: appsv1.SchemeGroupVersion.WithResource("replicasets")},
		children.Kind{ObjectKind: "OperatorCondition", Resource: operatorsv2.GroupVersion.WithResource("operatorconditions")}) {
		for _, name := range []string{kind.ObjectKind, kind.ObjectKind + "List"} {
			mapper.AddSpecific(kind.Resource.GroupVersion().WithKind(name), kind.Resource, kind.Resource, meta.RESTScopeNamespace)
		}
	}
	return mapper
}

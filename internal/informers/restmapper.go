package informers

import (
	"strings"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RESTMapper maps the kinds that the operator uses without discovery. So the setup makes no API
// calls, and only the cache waits for an unavailable API server or a missing CRD.
func RESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	add := func(kind string, resource schema.GroupVersionResource) {
		version := resource.GroupVersion()
		singular := version.WithResource(strings.ToLower(kind))
		for _, name := range []string{kind, kind + "List"} {
			mapper.AddSpecific(version.WithKind(name), resource, singular, meta.RESTScopeNamespace)
		}
	}
	add("ReplicaSet", appsv1.SchemeGroupVersion.WithResource("replicasets"))
	add("OperatorCondition", operatorsv2.GroupVersion.WithResource("operatorconditions"))
	for _, kind := range cachedKinds() {
		add(kind.ObjectKind, kind.Resource)
	}
	return mapper
}

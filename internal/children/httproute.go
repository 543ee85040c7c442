package children

import (
	"fmt"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// WantsHTTPRoute reports whether the Echo has an HTTPRoute.
func WantsHTTPRoute(echo *echov1.Echo) bool { return echo.Spec.Route != nil }

// HTTPRoute mutates the HTTPRoute of the Echo. It has exactly one rule, which keeps its name and its
// timeouts. Filters and other backends would change the response, so the rule has none.
func HTTPRoute(route *gatewayv1.HTTPRoute, echo *echov1.Echo) {
	setMeta(route, echo, serverComponent)
	spec := ptr.Deref(echo.Spec.Route, echov1.Route{})
	route.Spec.ParentRefs = ParentRefs(&spec)
	route.Spec.Hostnames = nil
	for _, hostname := range spec.Hostnames {
		route.Spec.Hostnames = append(route.Spec.Hostnames, gatewayv1.Hostname(hostname))
	}
	var rule gatewayv1.HTTPRouteRule
	if len(route.Spec.Rules) > 0 {
		rule = route.Spec.Rules[0]
	}
	rule.Matches, rule.Filters = matches(spec.Paths), nil
	rule.BackendRefs = []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
		BackendObjectReference: gatewayv1.BackendObjectReference{
			Group: ptr.To[gatewayv1.Group](""),
			Kind:  ptr.To[gatewayv1.Kind]("Service"),
			Name:  gatewayv1.ObjectName(Name(echo)),
			Port:  new(routePort),
		},
		Weight: ptr.To[int32](1),
	}}}
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{rule}
}

// ParentRefs returns the references of a route to its Gateways.
func ParentRefs(route *echov1.Route) (refs []gatewayv1.ParentReference) {
	for _, parent := range route.ParentRefs {
		ref := gatewayv1.ParentReference{
			Group: ptr.To[gatewayv1.Group](gatewayv1.GroupName),
			Kind:  ptr.To[gatewayv1.Kind]("Gateway"),
			Name:  gatewayv1.ObjectName(parent.Name),
		}
		if parent.Namespace != "" {
			ref.Namespace = new(gatewayv1.Namespace(parent.Namespace))
		}
		if parent.SectionName != "" {
			ref.SectionName = new(gatewayv1.SectionName(parent.SectionName))
		}
		if parent.Port != 0 {
			ref.Port = new(parent.Port)
		}
		refs = append(refs, ref)
	}
	return refs
}

func matches(paths []echov1.Path) (all []gatewayv1.HTTPRouteMatch) {
	for _, path := range paths {
		all = append(all, gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: new(matchType(path)), Value: new(path.Value)}})
	}
	return all
}

// matchType returns how the path matches. The schema has no default for it: a client that applies a list sends whole items,
// so each apply would remove the default again.
func matchType(path echov1.Path) gatewayv1.PathMatchType {
	if path.Type == "" {
		return gatewayv1.PathMatchPathPrefix
	}
	return gatewayv1.PathMatchType(path.Type)
}

// matchesRequest reports whether the Gateways send requests with this path, without its query, to the Echo. A prefix matches whole
// elements.
func matchesRequest(path echov1.Path, requested string) bool {
	if matchType(path) == gatewayv1.PathMatchExact {
		return requested == path.Value
	}
	prefix := strings.TrimSuffix(path.Value, "/")
	return requested == prefix || strings.HasPrefix(requested, prefix+"/")
}

// ExternalURL returns the URL of the Echo outside the cluster, or an empty string if the Echo has no
// route, or if the route's first hostname is unknown.
func ExternalURL(echo *echov1.Echo) string {
	address := externalAddress(echo)
	if address == "" {
		return ""
	}
	return address + echo.Spec.Route.Paths[0].Value
}

// externalAddress returns the external URL without its path.
func externalAddress(echo *echov1.Echo) string {
	route := echo.Spec.Route
	if route == nil || len(route.Hostnames) == 0 || strings.HasPrefix(route.Hostnames[0], "*") {
		return ""
	}
	address := route.Scheme + "://" + route.Hostnames[0]
	standard := map[string]int32{"http": 80, "https": 443}
	if port := route.ParentRefs[0].Port; port != 0 && port != standard[route.Scheme] {
		return fmt.Sprintf("%s:%d", address, port)
	}
	return address
}

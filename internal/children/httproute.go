package children

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// WantsHTTPRoute reports whether the Echo has an HTTPRoute.
func WantsHTTPRoute(echo *echov1.Echo) bool { return echo.Spec.Route != nil }

// HTTPRoute mutates the HTTPRoute of the Echo. Its rules keep their names and their timeouts. Filters and other backends would
// change the response, so the rules have none.
func HTTPRoute(route *gatewayv1.HTTPRoute, echo *echov1.Echo, in Inputs) {
	setMeta(route, echo, serverComponent)
	setOverrides(route, echo)
	t := targetOf(echo, in)
	route.Spec.ParentRefs, route.Spec.Hostnames = t.parentRefs, t.hostnames
	rules := route.Spec.Rules
	route.Spec.Rules = nil
	for first := 0; first == 0 || first < len(t.matches); first += maxRuleMatches {
		var rule gatewayv1.HTTPRouteRule
		if i := len(route.Spec.Rules); i < len(rules) {
			rule = rules[i]
		}
		rule.Matches, rule.Filters = t.matches[first:min(first+maxRuleMatches, len(t.matches))], nil
		rule.BackendRefs = []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{
				Group: ptr.To[gatewayv1.Group](""),
				Kind:  ptr.To[gatewayv1.Kind]("Service"),
				Name:  gatewayv1.ObjectName(Name(echo)),
				Port:  new(routePort),
			},
			Weight: ptr.To[int32](1),
		}}}
		route.Spec.Rules = append(route.Spec.Rules, rule)
	}
}

// target is what an HTTPRoute attaches to, and which requests it matches.
type target struct {
	parentRefs []gatewayv1.ParentReference
	hostnames  []gatewayv1.Hostname
	matches    []gatewayv1.HTTPRouteMatch
}

// targetOf returns the target that the Echo declares or, with overrides, that of the overridden HTTPRoutes.
func targetOf(echo *echov1.Echo, in Inputs) (t target) {
	route := ptr.Deref(echo.Spec.Route, echov1.Route{})
	if len(route.Overrides) > 0 {
		return overridingTarget(in.OverriddenRoutes)
	}
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
		t.parentRefs = append(t.parentRefs, ref)
	}
	for _, hostname := range route.Hostnames {
		t.hostnames = append(t.hostnames, gatewayv1.Hostname(hostname))
	}
	for _, path := range route.Paths {
		// The schema has no default for the type: a client that applies a list sends whole items, so each apply would remove it again.
		match := cmp.Or(gatewayv1.PathMatchType(path.Type), gatewayv1.PathMatchPathPrefix)
		t.matches = append(t.matches, gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: &match, Value: new(path.Value)}})
	}
	return t
}

// ParentRefs returns the references of the Echo's HTTPRoute to its Gateways.
func ParentRefs(echo *echov1.Echo, in Inputs) []gatewayv1.ParentReference {
	return targetOf(echo, in).parentRefs
}

// matchesRequest reports whether the Gateways send requests with this path, without its query, to the Echo, whatever its
// method, headers and query. A prefix matches whole elements.
func matchesRequest(match gatewayv1.HTTPRouteMatch, requested string) bool {
	path, matchesAll := plainPath(match)
	if !matchesAll || *match.Path.Type == gatewayv1.PathMatchExact {
		return matchesAll && requested == path
	}
	prefix := strings.TrimSuffix(path, "/")
	return requested == prefix || strings.HasPrefix(requested, prefix+"/")
}

// plainPath returns the path of a match, and whether a GET request for it matches without headers, and without a query.
func plainPath(match gatewayv1.HTTPRouteMatch) (path string, isPlain bool) {
	isPlain = len(match.Headers)+len(match.QueryParams) == 0 && ptr.Deref(match.Method, gatewayv1.HTTPMethodGet) == gatewayv1.HTTPMethodGet &&
		*match.Path.Type != gatewayv1.PathMatchRegularExpression
	return *match.Path.Value, isPlain
}

// ExternalURL returns the URL of the Echo outside the cluster, or an empty string if the Echo has no
// route, or if the route's first hostname or the path of a request is unknown.
func ExternalURL(echo *echov1.Echo, in Inputs) string {
	t := targetOf(echo, in)
	address := t.address(echo)
	for _, match := range t.matches {
		if path, isPlain := plainPath(match); isPlain && address != "" {
			return address + path
		}
	}
	return ""
}

// address returns the external URL without its path.
func (t target) address(echo *echov1.Echo) string {
	if len(t.hostnames) == 0 || strings.HasPrefix(string(t.hostnames[0]), "*") {
		return ""
	}
	address := echo.Spec.Route.Scheme + "://" + string(t.hostnames[0])
	standard := map[string]int32{"http": 80, "https": 443}
	if port := ptr.Deref(t.parentRefs[0].Port, 0); port != 0 && port != standard[echo.Spec.Route.Scheme] {
		return fmt.Sprintf("%s:%d", address, port)
	}
	return address
}

package children

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// The limits of an HTTPRoute.
// Source: the validation of HTTPRouteSpec in sigs.k8s.io/gateway-api/apis/v1.
const (
	maxRuleMatches = 64
	maxMatches     = 128
)

// overridingMethods are the methods of the requests that an Echo gets instead of an overridden HTTPRoute. A match with a
// method has precedence over the same match without one, before the age of the routes decides.
// Source: HTTPRouteRule.Matches in sigs.k8s.io/gateway-api/apis/v1.
var overridingMethods = []gatewayv1.HTTPMethod{
	gatewayv1.HTTPMethodGet, gatewayv1.HTTPMethodHead, gatewayv1.HTTPMethodPost, gatewayv1.HTTPMethodPut,
	gatewayv1.HTTPMethodPatch, gatewayv1.HTTPMethodDelete, gatewayv1.HTTPMethodOptions,
}

// overridesAnnotation contains, on an HTTPRoute, the names of those that it overrides.
const overridesAnnotation = "kkloud.io/overrides"

// Overrides returns the names of the HTTPRoutes that the Echo overrides.
func Overrides(echo *echov1.Echo) (names []string) {
	for _, ref := range ptr.Deref(echo.Spec.Route, echov1.Route{}).Overrides {
		names = append(names, ref.Name)
	}
	return names
}

func setOverrides(route *gatewayv1.HTTPRoute, echo *echov1.Echo) {
	if names := strings.Join(Overrides(echo), ","); names != "" {
		metav1.SetMetaDataAnnotation(&route.ObjectMeta, overridesAnnotation, names)
	} else {
		delete(route.Annotations, overridesAnnotation)
	}
}

// outlive has the garbage collector delete a child only after one of the objects: an object is garbage when all of its
// owners are gone. The child keeps the one that it has.
func outlive(child metav1.Object, objects []metav1.OwnerReference) {
	owners := child.GetOwnerReferences()
	isObject := func(o metav1.OwnerReference) bool {
		return slices.ContainsFunc(objects, func(object metav1.OwnerReference) bool { return object.UID == o.UID })
	}
	if len(objects) == 0 || slices.ContainsFunc(owners, isObject) {
		return
	}
	owners = slices.DeleteFunc(owners, func(o metav1.OwnerReference) bool { return o.Kind == objects[0].Kind })
	child.SetOwnerReferences(append(owners, objects[0]))
}

// StillOverrides reports whether a child overrides the HTTPRoutes that the Echo declares, as they were.
func StillOverrides(child Object, echo *echov1.Echo) bool {
	names := strings.Join(Overrides(echo), ",")
	return names != "" && child.GetAnnotations()[overridesAnnotation] == names
}

// WhyNotOverridable returns why no HTTPRoute can have precedence over all the routes and match no other request, or an empty
// string.
func WhyNotOverridable(echo *echov1.Echo, routes []gatewayv1.HTTPRoute) string {
	first, count := &routes[0], 0
	for i := range routes {
		route := &routes[i]
		if route.Name == Name(echo) {
			return fmt.Sprintf("HTTPRoute %s belongs to this Echo", route.Name)
		}
		if !sameItems(first.Spec.Hostnames, route.Spec.Hostnames, func(a, b gatewayv1.Hostname) bool { return a == b }) ||
			!sameItems(first.Spec.ParentRefs, route.Spec.ParentRefs, func(a, b gatewayv1.ParentReference) bool { return SameParent(a, b, echo.Namespace) }) {
			return fmt.Sprintf("HTTPRoutes %s and %s have different Gateways or hostnames: use an Echo for each", first.Name, route.Name)
		}
		matches := matchesOf(route)
		for _, match := range matches {
			if match.Method != nil {
				return fmt.Sprintf("no match has precedence over that of HTTPRoute %s with the path %s and the method %s",
					route.Name, *match.Path.Value, *match.Method)
			}
		}
		count += len(matches)
	}
	if most := maxMatches / len(overridingMethods); count > most {
		return fmt.Sprintf("the HTTPRoutes have %d matches, and at most %d can be overridden", count, most)
	}
	if len(first.Spec.ParentRefs) == 0 {
		return fmt.Sprintf("HTTPRoute %s has no parentRefs", first.Name)
	}
	return ""
}

// overridingTarget returns the target of an HTTPRoute that matches the same requests as the routes, with a higher precedence.
// That of the Echo's own HTTPRoute is as it is.
func overridingTarget(routes []gatewayv1.HTTPRoute) (t target) {
	for i := range routes {
		t.parentRefs, t.hostnames = routes[0].Spec.ParentRefs, routes[0].Spec.Hostnames
		for _, match := range matchesOf(&routes[i]) {
			if isOwn := match.Method != nil; isOwn {
				t.matches = append(t.matches, match)
				continue
			}
			for _, method := range overridingMethods {
				match.Method = new(method)
				t.matches = append(t.matches, match)
			}
		}
	}
	return t
}

// matchesOf returns the matches of all rules. A rule without matches, and a match without a path, match every path.
func matchesOf(route *gatewayv1.HTTPRoute) (matches []gatewayv1.HTTPRouteMatch) {
	for _, rule := range route.Spec.Rules {
		if len(rule.Matches) == 0 {
			rule.Matches = []gatewayv1.HTTPRouteMatch{{}}
		}
		for _, match := range rule.Matches {
			path := ptr.Deref(match.Path, gatewayv1.HTTPPathMatch{})
			match.Path = &gatewayv1.HTTPPathMatch{
				Type: new(ptr.Deref(path.Type, gatewayv1.PathMatchPathPrefix)), Value: new(ptr.Deref(path.Value, "/")),
			}
			matches = append(matches, match)
		}
	}
	return matches
}

// SameParent reports whether two references of a route in the namespace are equal. Fields that are not set have the default of
// the Gateway API.
func SameParent(a, b gatewayv1.ParentReference, namespace string) bool {
	return ptr.Deref(a.Group, gatewayv1.GroupName) == ptr.Deref(b.Group, gatewayv1.GroupName) &&
		ptr.Deref(a.Kind, "Gateway") == ptr.Deref(b.Kind, "Gateway") &&
		ptr.Deref(a.Namespace, gatewayv1.Namespace(namespace)) == ptr.Deref(b.Namespace, gatewayv1.Namespace(namespace)) &&
		a.Name == b.Name && ptr.Deref(a.SectionName, "") == ptr.Deref(b.SectionName, "") && ptr.Deref(a.Port, 0) == ptr.Deref(b.Port, 0)
}

// sameItems reports whether the lists have the same items in any order.
func sameItems[T any](a, b []T, same func(a, b T) bool) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(item T) bool {
		return !slices.ContainsFunc(b, func(other T) bool { return same(item, other) })
	})
}

// Package precedence tests which requests an Echo gets that overrides HTTPRoutes, with a model of the Gateway API.
package precedence

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

type request struct {
	path    string
	method  gatewayv1.HTTPMethod
	headers map[string]string
	query   map[string]string
}

// rank is the precedence of a match: that of the path, the method, the headers and the query parameters.
// Source: HTTPRouteRule.Matches in sigs.k8s.io/gateway-api/apis/v1.
type rank [4]int

func (r rank) compare(other rank) int {
	for i := range r {
		if c := cmp.Compare(r[i], other[i]); c != 0 {
			return c
		}
	}
	return 0
}

// matches reports whether the match matches the request, and its rank.
func matches(m gatewayv1.HTTPRouteMatch, r request) (rank, bool) {
	path := ptr.Deref(m.Path, gatewayv1.HTTPPathMatch{})
	value := ptr.Deref(path.Value, "/")
	ranks := rank{len(value), 0, len(m.Headers), len(m.QueryParams)}
	if ptr.Deref(path.Type, gatewayv1.PathMatchPathPrefix) == gatewayv1.PathMatchExact {
		if r.path != value {
			return ranks, false
		}
		ranks[0] = 1 << 20
	} else if prefix := strings.TrimSuffix(value, "/"); r.path != prefix && !strings.HasPrefix(r.path, prefix+"/") {
		return ranks, false
	}
	if m.Method != nil {
		ranks[1] = 1
		if *m.Method != r.method {
			return ranks, false
		}
	}
	for _, header := range m.Headers {
		if r.headers[string(header.Name)] != header.Value {
			return ranks, false
		}
	}
	for _, parameter := range m.QueryParams {
		if r.query[string(parameter.Name)] != parameter.Value {
			return ranks, false
		}
	}
	return ranks, true
}

// winner returns the route that gets the request: that of the match with the highest rank, or else the first of the routes,
// which are in the order of their age.
func winner(routes []gatewayv1.HTTPRoute, r request) (name string) {
	var highest rank
	for _, route := range routes {
		for _, rule := range route.Spec.Rules {
			all := rule.Matches
			if len(all) == 0 {
				all = []gatewayv1.HTTPRouteMatch{{}}
			}
			for _, m := range all {
				if ranks, is := matches(m, r); is && (name == "" || ranks.compare(highest) > 0) {
					name, highest = route.Name, ranks
				}
			}
		}
	}
	return name
}

var (
	methods = []gatewayv1.HTTPMethod{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"}
	paths   = []string{"/", "/a", "/a/", "/a/b", "/ab", "/login"}
)

func pick[T any](random *rand.Rand, items ...T) T { return items[random.IntN(len(items))] }

func randomRoute(random *rand.Rand, name string, canNameMethods bool) gatewayv1.HTTPRoute {
	route := gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "public"}}
	for range 1 + random.IntN(3) {
		var rule gatewayv1.HTTPRouteRule
		for range random.IntN(4) {
			var m gatewayv1.HTTPRouteMatch
			if random.IntN(5) > 0 {
				m.Path = &gatewayv1.HTTPPathMatch{Value: new(pick(random, paths...))}
				m.Path.Type = pick(random, nil, new(gatewayv1.PathMatchPathPrefix), new(gatewayv1.PathMatchExact))
			}
			for _, header := range []gatewayv1.HTTPHeaderName{"x", "y"} {
				if random.IntN(4) == 0 {
					m.Headers = append(m.Headers, gatewayv1.HTTPHeaderMatch{Name: header, Value: pick(random, "1", "2")})
				}
			}
			if random.IntN(5) == 0 {
				m.QueryParams = append(m.QueryParams, gatewayv1.HTTPQueryParamMatch{Name: "q", Value: pick(random, "1", "2")})
			}
			if canNameMethods && random.IntN(2) == 0 {
				m.Method = new(pick(random, methods...))
			}
			rule.Matches = append(rule.Matches, m)
		}
		route.Spec.Rules = append(route.Spec.Rules, rule)
	}
	return route
}

func randomRequest(random *rand.Rand) request {
	return request{
		path: pick(random, append(paths, "/a/b/c", "/other")...), method: pick(random, methods...),
		headers: map[string]string{"x": pick(random, "", "1", "2"), "y": pick(random, "", "1")}, query: map[string]string{"q": pick(random, "", "1", "2")},
	}
}

// Each request that an overridden route would get must reach the Echo, unless the Gateway API knows no match with a higher
// precedence for its method. The Echo must get no request that no overridden route matches.
func TestOverridePrecedence(t *testing.T) {
	overridden := map[string]bool{"shop": true, "api": true}
	routesTried, requestsTried, taken, rejected := 0, 0, 0, 0
	for seed := range uint64(5_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		shop, api := randomRoute(random, "shop", random.IntN(10) == 0), randomRoute(random, "api", false)
		others := []gatewayv1.HTTPRoute{shop, api, randomRoute(random, "other", true)}
		random.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "page"}}
		echo.Spec.Route = &echov1.Route{Overrides: []echov1.RouteRef{{Name: "shop"}, {Name: "api"}}}
		in := children.Inputs{OverriddenRoutes: []gatewayv1.HTTPRoute{shop, api}}
		if why := children.WhyNotOverridable(echo, in.OverriddenRoutes); why != "" {
			rejected++
			continue
		}
		page := gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "echo-page"}}
		children.HTTPRoute(&page, echo, in)
		checkLimits(t, page)
		all := append(slices.Clip(others), page)
		routesTried++
		for range 50 {
			requestsTried++
			r := randomRequest(random)
			before, after := winner(others, r), winner(all, r)
			isOverridable := r.method != "TRACE" && r.method != "CONNECT"
			switch {
			case overridden[before] && isOverridable && after != page.Name:
				t.Fatalf("seed %d: %s, which HTTPRoute %s gets, is not overridden:\n%s", seed, fmt.Sprint(r), before, describe(all))
			case after == page.Name && winner([]gatewayv1.HTTPRoute{shop, api}, r) == "":
				t.Fatalf("seed %d: the Echo gets %s, which no overridden HTTPRoute matches:\n%s", seed, fmt.Sprint(r), describe(all))
			case after != page.Name && after != before:
				t.Fatalf("seed %d: HTTPRoute %s gets %s, which HTTPRoute %s gets without the Echo:\n%s", seed, after, fmt.Sprint(r), before, describe(all))
			case after == page.Name:
				taken++
			}
		}
	}
	if taken == 0 || rejected == 0 {
		t.Errorf("%d requests of an Echo, %d sets of routes rejected, want both", taken, rejected)
	}
	t.Logf("%d sets of routes, %d requests, of which %d reach the Echo; %d sets rejected", routesTried, requestsTried, taken, rejected)
}

func TestWhyNotOverridable(t *testing.T) {
	const different = "HTTPRoutes shop and api have different Gateways or hostnames: use an Echo for each"
	for want, change := range map[string]func(shop, api *gatewayv1.HTTPRoute){
		"": func(_, api *gatewayv1.HTTPRoute) {
			api.Spec.ParentRefs[0] = gatewayv1.ParentReference{Group: new(gatewayv1.Group(gatewayv1.GroupName)), Kind: new(gatewayv1.Kind("Gateway")),
				Namespace: new(gatewayv1.Namespace("n")), Name: "public"}
			api.Spec.Hostnames = []gatewayv1.Hostname{"b.example", "a.example"}
		},
		"no match has precedence over that of HTTPRoute api with the path / and the method POST": func(_, api *gatewayv1.HTTPRoute) {
			api.Spec.Rules = append(api.Spec.Rules, gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{{Method: new(gatewayv1.HTTPMethodPost)}}})
		},
		"the HTTPRoutes have 19 matches, and at most 18 can be overridden": func(shop, _ *gatewayv1.HTTPRoute) {
			shop.Spec.Rules[0].Matches = make([]gatewayv1.HTTPRouteMatch, 18)
		},
		"HTTPRoute shop has no parentRefs":         func(shop, api *gatewayv1.HTTPRoute) { shop.Spec.ParentRefs, api.Spec.ParentRefs = nil, nil },
		"HTTPRoute echo-page belongs to this Echo": func(shop, _ *gatewayv1.HTTPRoute) { shop.Name = "echo-page" },
		different: func(_, api *gatewayv1.HTTPRoute) { api.Spec.Hostnames = api.Spec.Hostnames[1:] },
		different + " ": func(_, api *gatewayv1.HTTPRoute) {
			api.Spec.ParentRefs[0].SectionName = new(gatewayv1.SectionName("https"))
		},
	} {
		routes := make([]gatewayv1.HTTPRoute, 2)
		for i, name := range []string{"shop", "api"} {
			routes[i].Name, routes[i].Spec.ParentRefs = name, []gatewayv1.ParentReference{{Name: "public"}}
			routes[i].Spec.Hostnames, routes[i].Spec.Rules = []gatewayv1.Hostname{"a.example", "b.example"}, make([]gatewayv1.HTTPRouteRule, 1)
		}
		change(&routes[0], &routes[1])
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "page"}}
		if got := children.WhyNotOverridable(echo, routes); got != strings.TrimSpace(want) {
			t.Errorf("WhyNotOverridable = %q, want %q", got, strings.TrimSpace(want))
		}
	}
}

func checkLimits(t *testing.T, route gatewayv1.HTTPRoute) {
	t.Helper()
	sum := 0
	for _, rule := range route.Spec.Rules {
		sum += len(rule.Matches)
		if len(rule.Matches) == 0 || len(rule.Matches) > 64 {
			t.Fatalf("a rule has %d matches, want 1 to 64", len(rule.Matches))
		}
	}
	if len(route.Spec.Rules) > 16 || sum > 128 {
		t.Fatalf("%d rules with %d matches, want at most 16 and 128", len(route.Spec.Rules), sum)
	}
}

func describe(routes []gatewayv1.HTTPRoute) (text string) {
	for _, route := range routes {
		text += route.Name + "\n"
		for _, rule := range route.Spec.Rules {
			for _, m := range rule.Matches {
				path := ptr.Deref(m.Path, gatewayv1.HTTPPathMatch{})
				text += fmt.Sprintf("  %s %s %s %v %v\n", ptr.Deref(path.Type, ""), ptr.Deref(path.Value, ""), ptr.Deref(m.Method, ""), m.Headers, m.QueryParams)
			}
		}
	}
	return text
}

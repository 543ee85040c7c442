package children

import (
	"slices"
	"strings"
	"testing"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// withHeaders sets headers: names and values.
func withHeaders(namesAndValues ...string) func(*echov1.Echo) {
	return func(echo *echov1.Echo) {
		for i := 0; i < len(namesAndValues); i += 2 {
			echo.Spec.Headers = append(echo.Spec.Headers, echov1.Header{Name: namesAndValues[i], Value: namesAndValues[i+1]})
		}
	}
}

// headerArgs returns the values of the arguments -header, as the kubelet expands them.
func headerArgs(t *testing.T, args []string) (headers []string) {
	t.Helper()
	for _, arg := range args {
		if value, found := strings.CutPrefix(arg, "-header="); found {
			expanded := strings.ReplaceAll(value, "$$", "$")
			expectExpansion(t, value, expanded)
			headers = append(headers, expanded)
		}
	}
	return headers
}

func TestServerAndVerifierHaveTheDeclaredHeadersInTheOrderOfTheSpec(t *testing.T) {
	const text, html = "Content-Type: text/plain; charset=utf-8", "Content-Type: text/html; charset=utf-8"
	for name, test := range map[string]struct {
		echo             *echov1.Echo
		server, verifier []string
	}{
		"no headers": {newEcho(), nil, []string{text}},
		"the order of the spec": {
			newEcho(withHeaders("X-B", "b: c", "Cache-Control", "no-store", "X-A", "a")),
			[]string{"X-B: b: c", "Cache-Control: no-store", "X-A: a"}, []string{"X-B: b: c", "Cache-Control: no-store", "X-A: a", text},
		},
		"variables of the kubelet": {
			newEcho(withHeaders("X-$", "$(HOME) $$ $(ECHO_TEXT) $")),
			[]string{"X-$: $(HOME) $$ $(ECHO_TEXT) $"}, []string{"X-$: $(HOME) $$ $(ECHO_TEXT) $", text},
		},
		"a declared content type": {
			newEcho(withHeaders("content-type", "application/json")), []string{"content-type: application/json"}, []string{"content-type: application/json"},
		},
		"a page": {newEcho(withPage("t"), withHeaders("Retry-After", "60")), []string{"Retry-After: 60", html}, []string{"Retry-After: 60", html}},
		"a page with a declared content type": {
			newEcho(withPage("t"), withHeaders("CONTENT-TYPE", "application/xhtml+xml")),
			[]string{"CONTENT-TYPE: application/xhtml+xml"}, []string{"CONTENT-TYPE: application/xhtml+xml"},
		},
		"a page with status 503": {
			newEcho(withPage("t"), withStatusCode(503)),
			[]string{html, "Cache-Control: no-store"}, []string{html, "Cache-Control: no-store"},
		},
		"a page with status 503 and declared caching": {
			newEcho(withPage("t"), withStatusCode(503), withHeaders("cache-control", "max-age=60")),
			[]string{"cache-control: max-age=60", html}, []string{"cache-control: max-age=60", html},
		},
		"status 503 without a page": {newEcho(withStatusCode(503)), nil, []string{text}},
		"a redirect": {
			newEcho(withStatusCode(301), withHeaders("Location", "/new")), []string{"Location: /new"}, []string{"Location: /new", text},
		},
		"no content":    {newEcho(withStatusCode(204), withHeaders("X-A", "a")), []string{"X-A: a"}, []string{"X-A: a"}},
		"reset content": {newEcho(withStatusCode(205)), nil, nil},
		"not modified":  {newEcho(withStatusCode(304), withHeaders("ETag", `"1"`)), []string{`ETag: "1"`}, []string{`ETag: "1"`}},
		"own server":    {newEcho(ownServer, withPage("t")), nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			withVerify(test.echo)
			withRoute(test.echo)
			test.echo.Spec.Route.Hostnames = []string{"a.example"}
			if got := headerArgs(t, desiredState(test.echo).pod().Containers[0].Args); !slices.Equal(got, test.server) {
				t.Errorf("headers of the server = %q, want %q", got, test.server)
			}
			for layer, want := range map[string][]string{"dns": nil, "service": test.verifier, "route": test.verifier} {
				if got := headerArgs(t, verifierArgs(t, test.echo, layer)); !slices.Equal(got, want) {
					t.Errorf("headers that the container %s expects = %q, want %q", layer, got, want)
				}
			}
		})
	}
}

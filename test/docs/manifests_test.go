package docs

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// TestEveryManifestInDocumentsHasOnlyKnownFields checks the blocks of the language yaml that contain an object of these kinds, or
// the spec of an Echo.
func TestEveryManifestInDocumentsHasOnlyKnownFields(t *testing.T) {
	for _, page := range pages(t) {
		for _, part := range strings.Split(readFile(t, page), "\n```yaml\n")[1:] {
			manifest, _, _ := strings.Cut(part, "\n```")
			var object any
			switch {
			case strings.HasPrefix(manifest, "spec:\n  message:"), strings.Contains(manifest, "kind: Echo\n"):
				object = &echov1.Echo{}
			case strings.Contains(manifest, "kind: Gateway\n"):
				object = &gatewayv1.Gateway{}
			case strings.Contains(manifest, "kind: HTTPRoute\n"):
				object = &gatewayv1.HTTPRoute{}
			case strings.Contains(manifest, "kind: Ingress\n"):
				object = &networkingv1.Ingress{}
			default:
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
				t.Errorf("%s: %v in:\n%s", page, err, manifest)
			}
		}
	}
}

// Package random generates Echoes for tests. It covers every value that the API accepts, and
// prefers edge cases to likely values.
package random

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/randfill/bytesource"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// Echo returns an Echo with the defaults of the API server. The same data returns the same
// Echo. Eight bytes of data are enough.
func Echo(data []byte) *echov1.Echo {
	random := source{rand.New(bytesource.New(data))} //nolint:gosec // It must be reproducible.
	echo := &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "op-demo", Name: random.name(), UID: "11111111-2222-3333-4444-555555555555"},
		Spec: echov1.EchoSpec{
			Message:    strings.ReplaceAll("m"+random.text(16383), "\x00", ""),
			Replicas:   1 + random.Int31n(5),
			Port:       random.port(80),
			TargetPort: random.port(5678),
			Pod:        random.pod(),
		},
	}
	if random.Intn(2) == 0 {
		echo.Spec.Page = &echov1.Page{
			Title:    random.text(253),
			Language: random.of("", "vi", "pt-BR", "zh-Hant-TW"),
			Color:    random.of("#2196F3", "#000000", "#fFfFfF", "#777777", fmt.Sprintf("#%06x", random.Int31n(1<<24))),
		}
	}
	if echo.Spec.Image = random.image(); echo.Spec.Image != "" {
		echo.Spec.Command, echo.Spec.Args = random.words(), random.words()
	} else if random.Intn(2) == 0 {
		echo.Spec.Command, echo.Spec.Args = []string{}, []string{} // Without an image, only empty lists are valid.
	}
	if len(echo.Spec.Command)+len(echo.Spec.Args) > 0 {
		echo.Spec.ReadinessPath = random.of("", "/", "/healthz", "//a", "/a?b=%20&c=$(HOME)#d", "/%zz", "/"+strings.Repeat("~", 1023))
	} else {
		echo.Spec.StatusCode = []int32{0, 200, 204, 404, 599, 200 + random.Int31n(400)}[random.Intn(6)]
	}
	if random.Intn(2) == 0 {
		echo.Spec.Resources = corev1.ResourceRequirements{Limits: random.resources(), Requests: random.resources()}
	}
	if random.Intn(2) == 0 {
		echo.Spec.Route = random.route()
	}
	if random.Intn(2) == 0 {
		echo.Spec.Verify = random.verify()
	}
	return echo
}

type source struct{ *rand.Rand }

func (s source) of(choices ...string) string { return choices[s.Intn(len(choices))] }

func (s source) name() string {
	return s.of("hello", "a", "0", "a--b", "echo", "1-2-3", strings.Repeat("n", 58))
}

func (s source) port(standard int32) int32 {
	return []int32{1, standard, 1023, 1024, 65535, 1 + s.Int31n(65535)}[s.Intn(6)]
}

// text returns at most limit characters. It prefers extreme lengths, and strings with a special
// meaning in HTML, for the kubelet, in Go templates, in terminals or in logs.
func (s source) text(limit int) string {
	var text []rune
	for range s.Intn(12) {
		piece := []rune(s.of("", "a", " ", "\n", "\r\n", "\t", "\x00", "\x1b[31m", "\u202e", "\ufeff", "\u2028", "é", "😀",
			"<", "</title>", "</main>", "<script>alert(1)</script>", "<!--", "-->", "]]>", "&amp;", "&#0;", `"`, "'", "`", `\`, "%s%n",
			"{{.}}", "$", "$$", "$(HOME)", "$(ECHO_TEXT)", "$(", "level=error", string(s.Int31n(0xD800))))
		if s.Intn(20) == 0 {
			piece = slices.Repeat(piece, limit/max(1, len(piece)))
		}
		text = append(text, piece...)
	}
	return string(text[:min(len(text), limit)])
}

// words returns a list for command or args, sometimes the longest one.
func (s source) words() []string {
	switch s.Intn(20) {
	case 0:
		return slices.Repeat([]string{s.of("", "a", strings.Repeat("é", 512))}, 64)
	case 1:
		return slices.Repeat([]string{strings.Repeat("é", 16384)}, 2)
	case 2:
		return []string{}
	}
	var words []string
	for range s.Intn(4) {
		words = append(words, s.text(100))
	}
	return words
}

// image returns no image in half of the cases, and sometimes an invalid one.
func (s source) image() string {
	if s.Intn(2) == 0 {
		return ""
	}
	return s.of("nginx", "docker.io/library/busybox:1.37", "registry.example:5000/a/b@sha256:"+strings.Repeat("0", 64),
		strings.Repeat("i", 1024), "NOT//an::image", "$(HOME)", "😀", " outer space ")
}

// resources returns quantities in every notation. Many of the lists are invalid for a pod,
// because the schema of an Echo only requires that each value is a quantity.
func (s source) resources() corev1.ResourceList {
	list := corev1.ResourceList{}
	for range s.Intn(3) {
		name := s.of("cpu", "cpu", "memory", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/gpu", "nonsense")
		list[corev1.ResourceName(name)] = resource.MustParse(s.of("0", "1", "10m", "0.0105", "100500u", "1e3", "64Mi", "1500M", "1.5Gi", "-1", "9223372036854775807"))
	}
	return list
}

// route returns a route with the defaults of the API server.
func (s source) route() *echov1.Route {
	route := &echov1.Route{Scheme: s.of("http", "https")}
	for i := range 1 + s.Intn(4) {
		route.ParentRefs = append(route.ParentRefs, echov1.ParentRef{
			Name:        fmt.Sprint(s.of("g", "a.b", "0"), i), // Two entries for a Gateway need different sections.
			Namespace:   s.of("", "op-demo", "infra"),
			SectionName: s.of("", "https", "a.b"),
			Port:        []int32{0, 1, 80, 443, 8443, 65535}[s.Intn(6)],
		})
	}
	for range s.Intn(9) {
		route.Hostnames = append(route.Hostnames, s.of("a", "status.example.com", "*.example.com", "1.2.3.4", strings.Repeat("h", 253)))
	}
	for range 1 + s.Intn(8) {
		route.Paths = append(route.Paths, echov1.Path{
			Type:  s.of("Exact", "PathPrefix"),
			Value: s.of("/", "/docs/", "/.well-known/security.txt", "/a%20b", "/-._~!$&'()*+,;=:@", "/"+strings.Repeat("p", 1023)),
		})
	}
	for i := range s.Intn(17) {
		route.ResponseHeaders = append(route.ResponseHeaders, echov1.ResponseHeader{
			Name:  fmt.Sprint(s.of("Content-Type", "x", "!#$%&'*+-.^_`|~", strings.Repeat("n", 254)), i),
			Value: s.of("v", "text/html; charset=utf-8", "a\tb", strings.Repeat("v", 4096)),
		})
	}
	return route
}

// verify returns a verification with the defaults of the API server.
func (s source) verify() *echov1.Verify {
	period := []int32{1, 10, 300, 1 + s.Int31n(300)}[s.Intn(4)]
	return &echov1.Verify{
		From: s.of(echov1.VerifyFromCluster, echov1.VerifyFromEveryNode), PeriodSeconds: period,
		TimeoutSeconds: 1 + s.Int31n(min(period, 60)), FailureThreshold: 1 + s.Int31n(10),
	}
}

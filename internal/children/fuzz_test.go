package children

import (
	"cmp"
	"encoding/binary"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// FuzzMutate checks that the desired state of any Echo is deterministic, and that it depends
// neither on how often it was mutated nor on an earlier spec of the Echo.
func FuzzMutate(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(binary.BigEndian.AppendUint64(nil, seed), binary.BigEndian.AppendUint64(nil, ^seed))
	}
	f.Fuzz(func(t *testing.T, data, earlier []byte) {
		echo, before := values.Random(data), values.Random(earlier)
		before.ObjectMeta = echo.ObjectMeta // The same Echo, before an edit.
		untouched := echo.DeepCopy()
		want := desiredState(echo)

		again := want.deepCopy()
		again.mutate(echo)
		equal(t, again, want)

		edited := desiredState(before)
		edited.mutate(echo)
		equal(t, edited, want)

		equal(t, echo, untouched)
		expectVerifierPods(t, want, echo)
		if problems := validation.IsDNS1123Label(Name(echo)); len(problems) > 0 {
			t.Errorf("name %q is not a DNS label: %v", Name(echo), problems)
		}
		if pod := want.pod(); len(pod.Containers) != 1 || len(pod.InitContainers)+len(pod.Volumes) != 0 {
			t.Errorf("pod = %v, want 1 container, no init container and no volume", pod)
		}
		expectExpansion(t, serverText(want.pod().Containers[0], echo), Text(echo))
		if headers := headerArgs(t, want.pod().Containers[0].Args); !isCustomServer(echo) && len(headers) < len(echo.Spec.Headers) {
			t.Errorf("headers of the server = %q, want at least %v", headers, echo.Spec.Headers)
		}
		if echo.Spec.Page != nil {
			expectPage(t, echo)
		}
	})
}

// FuzzPage checks that a page has only the elements of the template, and that it shows message
// and title literally.
func FuzzPage(f *testing.F) {
	for _, text := range []string{"", "a", "</title><script>alert(1)</script>", "</main>", "<!--", "&lt;", "\x00", "\r\n", "{{.}}", "'\"`",
		"http://a.example/?b=c&d=(e).", `https://a.example/"onclick="alert(1)`, "https://例え.jp/状態。", "javascript:http://a&quot;x"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, title, message string) {
		if !utf8.ValidString(title) || !utf8.ValidString(message) {
			t.Skip("the API server stores only valid UTF-8")
		}
		echo := newEcho(withPage(title), func(e *echov1.Echo) { e.Spec.Message = message })
		expectPage(t, echo)
	})
}

// serverText returns the text in the container's argument or variable.
func serverText(container corev1.Container, echo *echov1.Echo) string {
	if !isCustomServer(echo) {
		return strings.TrimPrefix(container.Args[0], "-text=")
	}
	return container.Env[0].Value
}

// expectExpansion checks that the kubelet expands the argument to the text: every $ is escaped
// as $$.
func expectExpansion(t *testing.T, argument, want string) {
	t.Helper()
	if strings.Contains(strings.ReplaceAll(argument, "$$", ""), "$") {
		t.Errorf("argument = %q, want every $ escaped as $$", argument)
	}
	if got := strings.ReplaceAll(argument, "$$", "$"); got != want {
		t.Errorf("expanded argument = %q, want %q", got, want)
	}
}

// expectPage parses the page as a browser does, and returns its links.
func expectPage(t *testing.T, echo *echov1.Echo) (links []string) {
	t.Helper()
	document, err := html.Parse(strings.NewReader(Text(echo)))
	if err != nil {
		t.Fatal(err)
	}
	// The HTML parser normalizes newlines and replaces NUL.
	normalized := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "\uFFFD")
	message, title := normalized.Replace(echo.Spec.Message), normalized.Replace(cmp.Or(echo.Spec.Page.Title, echo.Name))
	texts, elements := map[atom.Atom]string{}, []string{}
	for node := range document.Descendants() {
		switch node.Type { //nolint:exhaustive // Other types do not occur below the document.
		case html.ElementNode:
			if node.DataAtom == atom.A {
				links = append(links, expectLink(t, node, message))
				continue
			}
			elements = append(elements, node.Data)
			for _, attribute := range node.Attr {
				elements = append(elements, attribute.Key)
			}
		case html.TextNode:
			parent := node.Parent
			if parent.DataAtom == atom.A {
				parent = parent.Parent
			}
			texts[parent.DataAtom] += node.Data
		case html.CommentNode:
			t.Errorf("the page contains the comment %q, want none", node.Data)
		}
	}
	want := "html dir head meta charset meta name content meta name content link rel href title style body main h1 p"
	if echo.Spec.Page.Language != "" {
		want = strings.Replace(want, "html", "html lang", 1)
	}
	if echo.Spec.StatusCode == http.StatusServiceUnavailable {
		want = strings.Replace(want, "charset", "charset meta name content", 1)
	}
	if got := strings.Join(elements, " "); got != want {
		t.Errorf("elements and attributes = %s, want %s; if page.html has a new one, add it to expectPage", got, want)
	}
	for element, want := range map[atom.Atom]string{atom.Title: title, atom.H1: title, atom.P: message} {
		if got := texts[element]; got != want {
			t.Errorf("<%s> contains %q, want %q", element, got, want)
		}
	}
	return links
}

// expectLink checks that a link leads to the URL that it shows, and returns that.
func expectLink(t *testing.T, link *html.Node, message string) string {
	t.Helper()
	if len(link.Attr) != 1 || link.Attr[0].Key != "href" || link.FirstChild == nil || link.FirstChild != link.LastChild {
		t.Fatalf("link with attributes %v and content %v, want only an href and a text", link.Attr, link.FirstChild)
	}
	href, text := link.Attr[0].Val, link.FirstChild.Data
	scheme, _, _ := strings.Cut(strings.ToLower(href), "://")
	if href != text || !strings.Contains(message, href) || scheme != "http" && scheme != "https" || strings.ContainsAny(href, "\"'<> \n") {
		t.Errorf("link to %q shows %q, want a URL of the message %q", href, text, message)
	}
	return href
}

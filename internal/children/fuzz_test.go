package children

import (
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/random"
)

// FuzzShapes: whatever an author writes, a shape is always the same, and it depends
// neither on how often it was applied nor on what the Echo was before.
func FuzzShapes(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(binary.BigEndian.AppendUint64(nil, seed), binary.BigEndian.AppendUint64(nil, ^seed))
	}
	f.Fuzz(func(t *testing.T, data, earlier []byte) {
		echo, before := random.Echo(data), random.Echo(earlier)
		before.ObjectMeta = echo.ObjectMeta // The same Echo, edited.
		untouched := echo.DeepCopy()
		deployment, service, budget := shaped(echo)

		againDeployment, againService, againBudget := deployment.DeepCopy(), service.DeepCopy(), budget.DeepCopy()
		Deployment(againDeployment, echo, defaultImage)
		Service(againService, echo)
		PodDisruptionBudget(againBudget, echo)
		equal(t, againDeployment, deployment)
		equal(t, againService, service)
		equal(t, againBudget, budget)

		kept := deployment.DeepCopy()
		Share(kept)
		equal(t, kept, deployment)

		editedDeployment, editedService, editedBudget := shaped(before)
		Deployment(editedDeployment, echo, defaultImage)
		Service(editedService, echo)
		PodDisruptionBudget(editedBudget, echo)
		equal(t, editedDeployment, deployment)
		equal(t, editedService, service)
		equal(t, editedBudget, budget)

		equal(t, echo, untouched)
		if problems := validation.IsDNS1123Label(Name(echo)); len(problems) > 0 {
			t.Errorf("name %q: %v", Name(echo), problems)
		}
		if pod := deployment.Spec.Template.Spec; len(pod.Containers) != 1 || len(pod.InitContainers) != 0 || len(pod.Volumes) != 1 {
			t.Errorf("the author added to the pod: %v", pod)
		}
		expandsTo(t, textGivenToServer(deployment.Spec.Template.Spec.Containers[0], echo), Text(echo))
		if echo.Spec.Page != nil {
			showsAsText(t, Text(echo), pageTitle(echo), echo.Spec.Message)
		}
	})
}

// FuzzPage: a page has the elements of the template and no other, and shows the message and
// the title as they are.
func FuzzPage(f *testing.F) {
	for _, text := range []string{"", "a", "</title><script>alert(1)</script>", "</main>", "<!--", "&lt;", "\x00", "\r\n", "{{.}}", "'\"`"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, title, message string) {
		if !utf8.ValidString(title) || !utf8.ValidString(message) {
			t.Skip("no API object holds such text")
		}
		echo := newEcho(withPage(title), func(e *echov1.Echo) { e.Spec.Message = message })
		showsAsText(t, Text(echo), pageTitle(echo), message)
	})
}

func pageTitle(echo *echov1.Echo) string {
	if echo.Spec.Page.Title == "" {
		return echo.Name
	}
	return echo.Spec.Page.Title
}

func textGivenToServer(container corev1.Container, echo *echov1.Echo) string {
	if !hasOwnServer(echo) {
		return strings.TrimPrefix(container.Args[0], "-text=")
	}
	return container.Env[0].Value
}

// expandsTo checks what the kubelet makes of an argument: $$ becomes $, and nothing else of
// it begins with a dollar.
func expandsTo(t *testing.T, argument, want string) {
	t.Helper()
	if strings.Contains(strings.ReplaceAll(argument, "$$", ""), "$") {
		t.Errorf("the kubelet expands %q", argument)
	}
	if got := strings.ReplaceAll(argument, "$$", "$"); got != want {
		t.Errorf("the server is given %q, want %q", got, want)
	}
}

// showsAsText reads the page as a browser does.
func showsAsText(t *testing.T, page, title, message string) {
	t.Helper()
	document, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	texts, elements := map[atom.Atom]string{}, []string{}
	for node := range document.Descendants() {
		switch node.Type { //nolint:exhaustive // The rest is the document itself.
		case html.ElementNode:
			elements = append(elements, node.Data)
		case html.TextNode:
			texts[node.Parent.DataAtom] += node.Data
		case html.CommentNode:
			t.Errorf("a comment: %q", node.Data)
		}
	}
	if got, want := strings.Join(elements, " "), "html head meta meta meta title style body header h1 main"; got != want {
		t.Errorf("elements are %s, want %s", got, want)
	}
	// HTML has one kind of newline, and no NUL.
	shown := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\x00", "\uFFFD")
	for element, want := range map[atom.Atom]string{atom.Title: title, atom.H1: title, atom.Main: message} {
		if got := texts[element]; got != shown.Replace(want) {
			t.Errorf("<%s> shows %q, want %q", element, got, shown.Replace(want))
		}
	}
}

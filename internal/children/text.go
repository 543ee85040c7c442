package children

import (
	_ "embed"
	"html/template"
	"strings"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// Text returns what the server answers: the message itself or, with spec.page, the HTML
// document that shows it.
func Text(echo *echov1.Echo) string {
	page := echo.Spec.Page
	if page == nil {
		return echo.Spec.Message
	}
	title := page.Title
	if title == "" {
		title = echo.Name
	}
	var html strings.Builder
	err := pageTemplate.Execute(&html, struct{ Language, Title, Color, Message string }{
		page.Language, title, page.Color, echo.Spec.Message,
	})
	if err != nil {
		panic(err) // A fixed template, plain strings, a writer in memory: a programming error.
	}
	// The server ends its answer with a newline of its own.
	return strings.TrimSuffix(html.String(), "\n")
}

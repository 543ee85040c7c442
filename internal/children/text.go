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

// Text returns the response body: the message or, with spec.page, the HTML page that shows it.
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
		panic(err) // Template and data types are constant, so this is a programming error.
	}
	// The server appends a newline.
	return strings.TrimSuffix(html.String(), "\n")
}

package children

import (
	"cmp"
	_ "embed"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/language"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(pageHTML))

// The parts of a URL in a message whose markup is escaped. The entities of quotes and angle brackets end a URL, and it
// contains parentheses only in pairs. Punctuation at its end belongs to the sentence.
const (
	letter = `\pL\pM\pN\p{So}$+=~/_\-`
	char   = `(?:[` + letter + `!#%*,.:;?@]|&amp;)`
	pair   = `\(` + char + `*\)`
)

var links = regexp.MustCompile(`(?i)\bhttps?://(?:` + char + `|` + pair + `)*(?:[` + letter + `]|` + pair + `)`)

// maxLinked is the most bytes of a message with links, each of which contains its URL twice. Linux limits one argument,
// here the page, to 128 KiB.
const maxLinked = 100 << 10

// rightToLeft are the scripts that are written from right to left.
var rightToLeft = []string{"Adlm", "Arab", "Hebr", "Mand", "Nkoo", "Rohg", "Samr", "Syrc", "Thaa"}

// Text returns the response body: the message or, with spec.page, the HTML page that shows it.
func Text(echo *echov1.Echo) string {
	page := echo.Spec.Page
	if page == nil {
		return echo.Spec.Message
	}
	message := template.HTMLEscapeString(echo.Spec.Message)
	if linked := links.ReplaceAllString(message, `<a href="$0">$0</a>`); len(linked) <= maxLinked {
		message = linked
	}
	direction := "auto"
	if script, _ := language.Make(page.Language).Script(); slices.Contains(rightToLeft, script.String()) {
		direction = "rtl"
	}
	var html strings.Builder
	err := pageTemplate.Execute(&html, map[string]any{
		"Title": cmp.Or(page.Title, echo.Name), "Language": page.Language, "Direction": direction, "Color": page.Color,
		"Unavailable": unavailable(echo), "Message": template.HTML(message), //nolint:gosec // It is escaped.
	})
	if err != nil {
		panic(err) // Template and data types are constant, so this is a programming error.
	}
	// The server appends a newline.
	return strings.TrimSuffix(html.String(), "\n")
}

func unavailable(echo *echov1.Echo) bool {
	return echo.Spec.StatusCode == http.StatusServiceUnavailable
}

const contentType, cacheControl = "Content-Type", "Cache-Control"

// serverHeaders returns the headers that the operator declares to the default server: those of the spec, and those of a
// page that the spec does not declare.
func serverHeaders(echo *echov1.Echo) []echov1.Header {
	headers := slices.Clone(echo.Spec.Headers)
	if echo.Spec.Page != nil && !hasHeader(headers, contentType) {
		headers = append(headers, echov1.Header{Name: contentType, Value: "text/html; charset=utf-8"})
	}
	if echo.Spec.Page != nil && unavailable(echo) && !hasHeader(headers, cacheControl) {
		headers = append(headers, echov1.Header{Name: cacheControl, Value: "no-store"})
	}
	return headers
}

func hasHeader(headers []echov1.Header, name string) bool {
	return slices.ContainsFunc(headers, func(h echov1.Header) bool { return strings.EqualFold(h.Name, name) })
}

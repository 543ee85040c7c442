package children

import (
	_ "embed"
	"html/template"
	"math"
	"slices"
	"strconv"
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
	err := pageTemplate.Execute(&html, struct{ Language, Title, Color, TitleColor, Message string }{
		page.Language, title, page.Color, titleColor(page.Color), echo.Spec.Message,
	})
	if err != nil {
		panic(err) // Template and data types are constant, so this is a programming error.
	}
	// The server appends a newline.
	return strings.TrimSuffix(html.String(), "\n")
}

const contentType = "Content-Type"

// serverHeaders returns the headers that the operator declares to the default server: those of the spec, and the
// content type of a page.
func serverHeaders(echo *echov1.Echo) []echov1.Header {
	if echo.Spec.Page == nil || hasHeader(echo.Spec.Headers, contentType) {
		return echo.Spec.Headers
	}
	return append(slices.Clone(echo.Spec.Headers), echov1.Header{Name: contentType, Value: "text/html; charset=utf-8"})
}

func hasHeader(headers []echov1.Header, name string) bool {
	return slices.ContainsFunc(headers, func(h echov1.Header) bool { return strings.EqualFold(h.Name, name) })
}

// titleColor returns black or white: whichever has the higher contrast with the colour, at least
// 4.5 to 1.
func titleColor(color string) string {
	const black, white = "#000", "#fff"
	if contrast(1, luminance(color)) > contrast(luminance(color), 0) {
		return white
	}
	return black
}

// contrast returns the contrast ratio of two relative luminances.
// Source: WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
func contrast(lighter, darker float64) float64 {
	return (lighter + 0.05) / (darker + 0.05)
}

// luminance returns the relative luminance of a colour such as "#2196F3", from 0 to 1.
// Source: WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-relative-luminance
func luminance(color string) float64 {
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		var value float64
		if 2*i+3 <= len(color) {
			channel, _ := strconv.ParseUint(color[2*i+1:2*i+3], 16, 8) // The schema allows only hexadecimal digits.
			value = float64(channel) / 255
		}
		if value <= 0.04045 {
			value /= 12.92
		} else {
			value = math.Pow((value+0.055)/1.055, 2.4)
		}
		sum += weight * value
	}
	return sum
}

package server

import (
	"bufio"
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAddHeaderNamesWhatIsNotAllowed(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"":                                  "is not a name",
		"X":                                 "is not a name",
		": a":                               "is not a name",
		"X : a":                             "is not a name",
		" X: a":                             "is not a name",
		"X Y: a":                            "is not a name",
		"X\r\nY: a":                         "is not a name",
		"Größe: a":                          "is not a name",
		"X: a\r\nSet-Cookie: b":             "control character",
		"X: a\nb":                           "control character",
		"X: a\rb":                           "control character",
		"X: a\x00b":                         "control character",
		"X: a\x7fb":                         "control character",
		"X: a\r\n":                          "control character",
		"X: a\r\n\r\nHTTP/1.1 200 OK":       "control character",
		"Connection: close":                 "sets the header Connection itself",
		"content-length: 3":                 "sets the header content-length itself",
		"Date: today":                       "sets the header Date itself",
		"Keep-Alive: timeout=5":             "sets the header Keep-Alive itself",
		"Trailer: X":                        "sets the header Trailer itself",
		"TRANSFER-ENCODING: chunked":        "sets the header TRANSFER-ENCODING itself",
		"Upgrade: h2c":                      "sets the header Upgrade itself",
		"x-declared: b":                     "declared twice",
		strings.ToUpper("X-Declared") + ":": "declared twice",
	} {
		r := hello()
		if err := r.AddHeader("X-Declared: a"); err != nil {
			t.Fatal(err)
		}
		if err := r.AddHeader(header); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("AddHeader(%q) = %v, want an error with %q", header, err, want)
		}
		if len(r.headers) != 1 {
			t.Errorf("AddHeader(%q) adds the header, want only an error", header)
		}
	}
}

func TestResponseHasTheDeclaredHeaders(t *testing.T) {
	t.Parallel()
	r := Response{Status: http.StatusFound, Body: []byte(body)}
	for _, header := range []string{"Location: https://example.com/?a=b:c", "X-Empty:", "Content-Type: \t text/html ", "X: café"} {
		if err := r.AddHeader(header); err != nil {
			t.Errorf("AddHeader(%q): %v", header, err)
		}
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(r.render(time.Unix(0, 0))[closing].all)), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := http.Header{
		"Location": {"https://example.com/?a=b:c"}, "X-Empty": {""}, "Content-Type": {"text/html"}, "X": {"café"},
		"Content-Length": {"6"}, "Date": {"Thu, 01 Jan 1970 00:00:00 GMT"},
	}
	if !response.Close || !maps.EqualFunc(response.Header, want, slices.Equal) {
		t.Errorf("header is %v, want %v", response.Header, want)
	}
}

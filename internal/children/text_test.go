package children

import (
	"fmt"
	"strings"
	"testing"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func TestPageEscapesMarkup(t *testing.T) {
	html := Text(newEcho(withPage(`</title><script>alert(1)</script>`), func(e *echov1.Echo) {
		e.Spec.Message = "\n<b>bold</b> & $(HOME)"
	}))
	for _, want := range []string{
		"<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>",
		"<main>\n&lt;b&gt;bold&lt;/b&gt; &amp; $(HOME)</main>",
		`content="#2196F3"`,
		"background: #2196F3;",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not contain %s:\n%s", want, html)
		}
	}
	if !strings.HasPrefix(html, "<!DOCTYPE html>") {
		t.Errorf("the page begins with %.20q, want a DOCTYPE", html)
	}
	if strings.HasSuffix(html, "\n") {
		t.Error("the page ends with a newline, but the server appends one")
	}
}

// Linux limits one argument to 128 KiB.
func TestLongestTextFitsIntoAnArgument(t *testing.T) {
	for _, char := range []string{"'", "😀", "$", "<", "\n"} {
		text := Text(newEcho(withPage(strings.Repeat(char, 253)), func(e *echov1.Echo) {
			e.Spec.Message = strings.Repeat(char, 16384)
		}))
		if length := len("-text=" + text + "\x00"); length > 128<<10 {
			t.Errorf("the longest page of %q has %d bytes, want at most %d", char, length, 128<<10)
		}
	}
}

func TestTitleIsReadableOnEveryColor(t *testing.T) {
	for red := 0; red < 256; red += 15 {
		for green := 0; green < 256; green += 15 {
			for blue := 0; blue < 256; blue += 15 {
				color := fmt.Sprintf("#%02X%02x%02X", red, green, blue)
				background, text := luminance(color), 0.0
				if titleColor(color) == "#fff" {
					text = 1
				}
				if ratio := contrast(max(background, text), min(background, text)); ratio < 4.5 {
					t.Fatalf("title on %s: contrast = %.2f, want at least 4.5", color, ratio)
				}
			}
		}
	}
	for color, want := range map[string]string{"#FFFFFF": "#000", "#000000": "#fff", "#2196F3": "#000", "#0000ff": "#fff"} {
		if got := titleColor(color); got != want {
			t.Errorf("title on %s: %s, want %s", color, got, want)
		}
	}
}

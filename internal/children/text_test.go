package children

import (
	"fmt"
	"math"
	"regexp"
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
				expectReadable(t, uint32(red<<16|green<<8|blue))
			}
		}
	}
	for color, want := range map[string]string{"#FFFFFF": "#000", "#000000": "#fff", "#2196F3": "#000", "#0000ff": "#fff"} {
		if got := titleColor(color); got != want {
			t.Errorf("title on %s: %s, want %s", color, got, want)
		}
	}
}

// FuzzTitleColor checks the contrast of the title in the page of any colour.
func FuzzTitleColor(f *testing.F) {
	for corner := range uint32(8) {
		f.Add(corner>>2*0xff0000 | corner>>1&1*0xff00 | corner&1*0xff)
	}
	f.Add(uint32(0x757575)) // Between black and white.
	f.Fuzz(expectReadable)
}

// expectReadable checks the colours as they are written in the page.
func expectReadable(t *testing.T, color uint32) {
	t.Helper()
	background := fmt.Sprintf("#%06X", color&0xffffff)
	page := Text(newEcho(func(e *echov1.Echo) { e.Spec.Page = &echov1.Page{Color: background} }))
	style := regexp.MustCompile(`header \{ background: (#[0-9A-F]{6}); color: #(000|fff);`).FindStringSubmatch(page)
	if style == nil || style[1] != background {
		t.Fatalf("style = %q, want the background %s and a black or white title", style, background)
	}
	text := 0.0
	if style[2] == "fff" {
		text = 1
	}
	ratio := (max(luminance(background), text) + 0.05) / (min(luminance(background), text) + 0.05)
	if ratio < 4.5 {
		t.Errorf("title #%s on %s: contrast = %.2f, want at least 4.5 (WCAG 2.2, success criterion 1.4.3)", style[2], background, ratio)
	}
}

// #808080 has the channel value 0.2159, #010101 is in the linear range.
func TestLuminanceIsThatOfWCAG(t *testing.T) {
	for color, want := range map[string]float64{
		"#000000": 0, "#ffffff": 1, "#FF0000": 0.2126, "#00ff00": 0.7152, "#0000ff": 0.0722, "#808080": 0.2159, "#010101": 0.0003,
	} {
		if got := luminance(color); math.Abs(got-want) > 0.0001 {
			t.Errorf("luminance of %s = %.4f, want %.4f", color, got, want)
		}
	}
}

// Package page looks at the pages of Echoes in Chromium.
package page

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var update = flag.Bool("update", false, "write the picture in docs/images")

// picture is the picture of the page in docs/echo.md, which shows this message.
const (
	picture = "../../docs/images/page.png"
	message = "We are moving to a larger warehouse. We expect to be back at 14:00 UTC.\n\nProgress: https://status.example.com/incidents/42"
)

// sizes are those of a phone, a laptop and a 4K screen.
var sizes = []image.Point{{X: 320, Y: 568}, {X: 1280, Y: 800}, {X: 3840, Y: 2160}}

//go:embed look.js
var look string

// seen is what the script in look.js returns.
type seen struct {
	Title, Heading, Text, Background string
	Colors, Links                    []string
	FontSizes                        []float64
	LongestLine                      int
	Overflow, StartsRight            bool
}

func TestPageIsReadable(t *testing.T) {
	browser := start(t)
	for name, test := range map[string]struct {
		page        echov1.Page
		message     string
		links       []string
		startsRight bool
	}{
		"short":  {page: echov1.Page{Title: "Back soon", Language: "en", Color: "#0D47A1"}, message: message, links: []string{"https://status.example.com/incidents/42"}},
		"markup": {page: echov1.Page{Title: "A <i>title</i>", Color: "#FFFFFF"}, message: "<b>not bold</b> &amp;\n\n  <script>alert(1)</script>"},
		"long": {
			page:    echov1.Page{Title: strings.Repeat("Long title ", 23), Color: "#000000"},
			message: strings.Repeat("Orders that you have placed are safe, and we ship them on Monday. ", 61)[:4000],
		},
		"long link": {
			page: echov1.Page{Color: "#808080"}, message: "At https://a.example/" + strings.Repeat("0", 400) + "?b=c&d=(e).",
			links: []string{"https://a.example/" + strings.Repeat("0", 400) + "?b=c&d=(e)"},
		},
		"Arabic": {
			page: echov1.Page{Title: "Shop", Language: "ar", Color: "#2196F3"}, message: "Shop يعود عند الساعة 14:00.\nالحالة: https://مثال.example/حالة، شكرا",
			links: []string{"https://xn--mgbh0fb.example/%D8%AD%D8%A7%D9%84%D8%A9"}, startsRight: true,
		},
		"Arabic without a language": {page: echov1.Page{Title: "Shop", Color: "#2196F3"}, message: "سنعود عند الساعة 14:00.", startsRight: true},
	} {
		t.Run(name, func(t *testing.T) {
			echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Spec: echov1.EchoSpec{Message: test.message, Page: &test.page}}
			tab, closeTab := chromedp.NewContext(browser)
			t.Cleanup(closeTab)
			open(t, tab, echo)
			for _, size := range sizes {
				for _, scheme := range []string{"light", "dark"} {
					got := lookAt(t, tab, size, scheme, "screen")
					where := fmt.Sprintf("at %v in the %s scheme", size, scheme)
					expectReadable(t, where, got)
					if got.Text != test.message || got.Heading != got.Title || test.page.Title != "" && got.Title != strings.TrimSpace(test.page.Title) {
						t.Errorf("%s: title = %q, heading = %q, text = %q, want those of the Echo", where, got.Title, got.Heading, got.Text)
					}
					if !slices.Equal(got.Links, test.links) {
						t.Errorf("%s: links = %q, want %q", where, got.Links, test.links)
					}
					if got.StartsRight != test.startsRight {
						t.Errorf("%s: the text starts at the right = %t, want %t", where, got.StartsRight, test.startsRight)
					}
				}
			}
			got := lookAt(t, tab, sizes[1], "dark", "print")
			expectReadable(t, "in print", got)
			if got.Background != "rgb(255, 255, 255)" {
				t.Errorf("background in print = %s, want white", got.Background)
			}
			if name == "short" && *update {
				writePicture(t, tab)
			}
		})
	}
}

// start starts Chromium.
func start(t *testing.T) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium-headless-shell"), chromedp.NoSandbox)
	allocator, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	limited, cancel := context.WithTimeout(allocator, 5*time.Minute)
	t.Cleanup(cancel)
	browser, quit := chromedp.NewContext(limited)
	t.Cleanup(quit)
	if err := chromedp.Do(browser); err != nil {
		t.Fatal(err)
	}
	return browser
}

// open loads the page of an Echo with a policy that allows nothing but its style, and fails if it loads anything else.
func open(t *testing.T, tab context.Context, echo *echov1.Echo) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:")
		_, _ = io.WriteString(w, children.Text(echo)+"\n")
	}))
	t.Cleanup(server.Close)
	if err := chromedp.Listen(tab, func(event any) {
		if request, ok := event.(*network.EventRequestWillBeSent); ok && !strings.HasPrefix(request.Request.URL, "data:") && request.Request.URL != server.URL+"/" {
			t.Errorf("the page requests %s, want no requests", request.Request.URL)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(tab, chromedp.Navigate(server.URL)); err != nil {
		t.Fatal(err)
	}
}

// emulate sets the size of the window, its pixels per CSS pixel, the color scheme and the medium.
func emulate(t *testing.T, tab context.Context, size image.Point, scale float64, scheme, medium string) {
	t.Helper()
	media := emulation.SetEmulatedMediaParams{Media: medium, Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(tab, emulation.SetEmulatedMedia, media); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Do(tab, chromedp.EmulateViewport(int64(size.X), int64(size.Y), chromedp.EmulateScale(scale))); err != nil {
		t.Fatal(err)
	}
}

func lookAt(t *testing.T, tab context.Context, size image.Point, scheme, medium string) seen {
	t.Helper()
	emulate(t, tab, size, 1, scheme, medium)
	got, err := chromedp.Run(tab, chromedp.Evaluate[seen](look))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func expectReadable(t *testing.T, where string, got seen) {
	t.Helper()
	if got.Overflow {
		t.Errorf("%s: the page is wider than the window", where)
	}
	if smallest := slices.Min(got.FontSizes); smallest < 16 {
		t.Errorf("%s: smallest font = %v pixels, want at least 16", where, smallest)
	}
	if got.LongestLine > 80 {
		t.Errorf("%s: longest line = %d characters, want at most 80", where, got.LongestLine)
	}
	for _, text := range got.Colors {
		if ratio := contrast(t, text, got.Background); ratio < 4.5 {
			t.Errorf("%s: contrast of %s on %s = %.2f, want at least 4.5 (WCAG 2.2, success criterion 1.4.3)", where, text, got.Background, ratio)
		}
	}
}

// contrast returns the contrast ratio of two opaque colors.
// Source: WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	return (max(luminance(t, a), luminance(t, b)) + 0.05) / (min(luminance(t, a), luminance(t, b)) + 0.05)
}

func luminance(t *testing.T, color string) float64 {
	t.Helper()
	var channels [3]float64
	if _, err := fmt.Sscanf(color, "rgb(%f, %f, %f)", &channels[0], &channels[1], &channels[2]); err != nil {
		t.Fatalf("color %q: %v", color, err)
	}
	for i, channel := range channels {
		if channel /= 255; channel <= 0.04045 {
			channels[i] = channel / 12.92
		} else {
			channels[i] = math.Pow((channel+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*channels[0] + 0.7152*channels[1] + 0.0722*channels[2]
}

// writePicture writes the open page at each size in both schemes, side by side.
func writePicture(t *testing.T, tab context.Context) {
	t.Helper()
	const height, gap = 320, 20
	sheet := image.NewRGBA(image.Rect(0, 0, 1341, 2*height+3*gap))
	draw.Draw(sheet, sheet.Bounds(), image.NewUniform(color.Gray{Y: 0x90}), image.Point{}, draw.Src)
	for row, scheme := range []string{"light", "dark"} {
		corner := image.Pt(gap, gap+row*(height+gap))
		for _, size := range sizes {
			emulate(t, tab, size, height/float64(size.Y), scheme, "screen")
			shot, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
			if err != nil {
				t.Fatal(err)
			}
			page, err := png.Decode(bytes.NewReader(shot))
			if err != nil {
				t.Fatal(err)
			}
			draw.Draw(sheet, page.Bounds().Add(corner), page, image.Point{}, draw.Src)
			corner.X += page.Bounds().Dx() + gap
		}
	}
	var file bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, sheet); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(picture, file.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

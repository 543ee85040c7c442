//go:build e2e

package e2e

import (
	"bytes"
	"compress/zlib"
	"image"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// schemes are the browser's colours behind text, by the flag that selects the colour scheme.
var schemes = map[string]color.RGBA{
	"--blink-settings=preferredColorScheme=1": {R: 0xff, G: 0xff, B: 0xff, A: 0xff},
	"--force-dark-mode":                       {R: 0x12, G: 0x12, B: 0x12, A: 0xff},
}

// readable is the contrast that WCAG 2.2 requires of text (success criterion 1.4.3).
const readable = 4.5

func pages() {
	const namespace = "pages-e2e"
	colors := map[string]string{"dark": "#0D47A1", "light": "#FFEB3B", "grey": "#757575"}

	BeforeAll(func() {
		newNamespace(namespace)
		for name, value := range colors {
			apply(namespace, echoManifest(name, map[string]any{
				"message": "<b>not bold</b>", "page": map[string]any{"title": "A <i>title</i>", "color": value},
			}))
		}
	})

	DescribeTable("that a browser shows with readable text, markup as text, and without colours on paper",
		func(name string, background color.RGBA) {
			waitReady(namespace, name)
			url := "http://" + forward(namespace, "service/echo-"+name, "80")

			dom := browse(url, "--dump-dom")
			Expect(dom).To(ContainSubstring("<title>A &lt;i&gt;title&lt;/i&gt;</title>"))
			Expect(dom).To(ContainSubstring("<main>&lt;b&gt;not bold&lt;/b&gt;</main>"))

			for scheme, paper := range schemes {
				picture := screenshot(url, scheme)
				header := image.Rect(0, 0, picture.Bounds().Dx(), heightOf(picture, background))
				main := image.Rectangle{image.Pt(0, header.Max.Y), picture.Bounds().Max}
				Expect(contrastIn(picture, header, background)).To(BeNumerically(">=", readable), "contrast of the title with %s", scheme)
				Expect(colorAt(picture, main.Min)).To(Equal(paper), "colour behind the message with %s", scheme)
				Expect(contrastIn(picture, main, paper)).To(BeNumerically(">=", readable), "contrast of the message with %s", scheme)
			}
			Expect(printedColors(url)).To(HaveEach("0 0 0"), "colours of the printed page")
		},
		Entry("on a dark colour", "dark", color.RGBA{R: 0x0d, G: 0x47, B: 0xa1, A: 0xff}),
		Entry("on a light colour", "light", color.RGBA{R: 0xff, G: 0xeb, B: 0x3b, A: 0xff}),
		Entry("on a grey between black and white", "grey", color.RGBA{R: 0x75, G: 0x75, B: 0x75, A: 0xff}),
	)
}

// browse opens the URL in a browser without any background network access.
func browse(url string, args ...string) string {
	GinkgoHelper()
	args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--user-data-dir=" + GinkgoT().TempDir(), url}, args...)
	output, err := exec.Command("chromium", args...).Output()
	Expect(err).NotTo(HaveOccurred())
	return string(output)
}

// screenshot returns a picture of the page in the colour scheme.
func screenshot(url, scheme string) image.Image {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "page.png")
	browse(url, "--screenshot="+file, scheme)
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	picture, err := png.Decode(bytes.NewReader(content))
	Expect(err).NotTo(HaveOccurred())
	return picture
}

func colorAt(picture image.Image, at image.Point) color.RGBA {
	return color.RGBAModel.Convert(picture.At(at.X, at.Y)).(color.RGBA)
}

// heightOf returns how many lines at the top of the picture begin with the colour.
func heightOf(picture image.Image, background color.RGBA) int {
	GinkgoHelper()
	height := 0
	for height < picture.Bounds().Dy() && colorAt(picture, image.Pt(0, height)) == background {
		height++
	}
	Expect(height).To(BeNumerically("~", 86, 20), "height of the header with the colour %v", background)
	return height
}

// contrastIn returns the highest contrast of a pixel in the area with the background: that of the text.
func contrastIn(picture image.Image, area image.Rectangle, background color.RGBA) (highest float64) {
	of := luminance(background)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			pixel := luminance(colorAt(picture, image.Pt(x, y)))
			highest = max(highest, (max(of, pixel)+0.05)/(min(of, pixel)+0.05))
		}
	}
	return highest
}

// luminance is the relative luminance of WCAG 2.2.
func luminance(c color.RGBA) float64 {
	linear := func(channel uint8) float64 {
		value := float64(channel) / 0xff
		if value <= 0.04045 {
			return value / 12.92
		}
		return math.Pow((value+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
}

// printedColors prints the page, and returns the colours in which the printer fills text and areas.
func printedColors(url string) (colors []string) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "page.pdf")
	browse(url, "--print-to-pdf="+file)
	pdf, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	for _, stream := range regexp.MustCompile(`(?s)stream\r?\n(.*?)endstream`).FindAllSubmatch(pdf, -1) {
		decoder, err := zlib.NewReader(bytes.NewReader(stream[1]))
		if err != nil {
			continue // It is a picture or a font.
		}
		content, err := io.ReadAll(decoder)
		Expect(err).NotTo(HaveOccurred())
		for _, fill := range regexp.MustCompile(`([\d.]+ [\d.]+ [\d.]+) rg\b`).FindAllSubmatch(content, -1) {
			colors = append(colors, string(fill[1]))
		}
	}
	Expect(colors).NotTo(BeEmpty(), "colours of the printed page")
	return colors
}

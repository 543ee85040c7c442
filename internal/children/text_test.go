package children

import (
	"slices"
	"strings"
	"testing"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// Linux limits one argument to 128 KiB.
func TestLongestTextFitsIntoAnArgument(t *testing.T) {
	for _, part := range []string{"'", "😀", "$", "<", "\n", "http://a ", "http://" + strings.Repeat("&", 1000) + "/ "} {
		text := Text(newEcho(withPage(strings.Repeat("'", 253)), func(e *echov1.Echo) {
			e.Spec.Message = string([]rune(strings.Repeat(part, 16384))[:16384])
		}))
		if length := len("-text=" + text + "\x00"); length > 128<<10 {
			t.Errorf("the longest page of %.20q has %d bytes, want at most %d", part, length, 128<<10)
		}
	}
}

func TestFixedPartOfThePageIsBelow3KiB(t *testing.T) {
	echo := newEcho(withPage("t"), withStatusCode(503), func(e *echov1.Echo) { e.Spec.Message = "m" })
	if size := len(Text(echo)); size >= 3<<10 {
		t.Errorf("a page with a short title and message has %d bytes, want less than %d", size, 3<<10)
	}
}

func TestURLsOfTheMessageAreLinks(t *testing.T) {
	for message, want := range map[string][]string{
		"no link: http:// ftp://a.example mailto:a@b.example a.example xhttp://a.example": nil,
		"https://a.example":                                                             {"https://a.example"},
		"HTTP://A.EXAMPLE/ and https://b.example/":                                      {"HTTP://A.EXAMPLE/", "https://b.example/"},
		"At https://a.example/x?y=1&z=2#top.":                                           {"https://a.example/x?y=1&z=2#top"},
		"Is it https://a.example/?":                                                     {"https://a.example/"},
		"https://a.example/?a&amp;b&lt;":                                                {"https://a.example/?a&amp;b&lt"},
		"https://a.example:8443/a,b;c@d!e%20f-":                                         {"https://a.example:8443/a,b;c@d!e%20f-"},
		`"https://a.example/b" 'https://a.example/c' <https://a.example/d>`:             {"https://a.example/b", "https://a.example/c", "https://a.example/d"},
		"(https://a.example/b) [c](https://a.example/c), `https://a.example/d`":         {"https://a.example/b", "https://a.example/c", "https://a.example/d"},
		"https://a.example/b_(c) https://a.example/(b)/c(d":                             {"https://a.example/b_(c)", "https://a.example/(b)/c"},
		"詳細はhttps://例え.jp/状態。次の":                                                        {"https://例え.jp/状態"},
		"انظر https://مثال.example/حالة، ثم":                                            {"https://مثال.example/حالة"},
		"https://a.example/\u202ecod.exe https://b.example\u00a0c https://c.example\nd": {"https://a.example/", "https://b.example", "https://c.example"},
		`javascript:https://a.example/"onclick="alert(1)`:                               {"https://a.example/"},
	} {
		echo := newEcho(withPage("t"), func(e *echov1.Echo) { e.Spec.Message = message })
		if got := expectPage(t, echo); !slices.Equal(got, want) {
			t.Errorf("message %q: links = %q, want %q", message, got, want)
		}
	}
}

func TestPageHasTheDirectionOfItsLanguage(t *testing.T) {
	for language, want := range map[string]string{
		"": "auto", "en": "auto", "pt-BR": "auto", "ur-Latn": "auto", "xxxxxxxx": "auto",
		"ar": "rtl", "ar-EG": "rtl", "HE": "rtl", "iw": "rtl", "fa": "rtl", "ur": "rtl", "yi": "rtl", "dv": "rtl", "az-Arab": "rtl",
	} {
		html := Text(newEcho(withPage("t"), func(e *echov1.Echo) { e.Spec.Page.Language = language }))
		if !strings.Contains(html, ` dir="`+want+`">`) {
			t.Errorf("language %q: the page begins with %.60q, want the direction %s", language, html, want)
		}
	}
}

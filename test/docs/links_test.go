// Package docs tests the documentation: that its links lead somewhere, and that the commands of
// the tutorial do what it shows.
package docs

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"
)

const root = "../.."

// TestLinks: every link of every Markdown file leads to a file, and to a heading, that is there.
func TestLinks(t *testing.T) {
	site, pages := newSite(os.DirFS(root), listFiles(t)), 0
	for page := range site.paths {
		if path.Ext(page) != ".md" {
			continue
		}
		pages++
		problems, err := site.check(page)
		if err != nil {
			t.Error(err)
		}
		for _, problem := range problems {
			t.Error(problem)
		}
	}
	if pages < 15 {
		t.Errorf("only %d pages were read", pages)
	}
}

// listFiles returns what git keeps, and what it would keep: a link to anything else leads nowhere
// in another clone.
func listFiles(t *testing.T) []string {
	t.Helper()
	output, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00")
}

// site is a set of files, some of which link to others.
type site struct {
	files fs.FS
	// paths are those of the files, and of the folders that they are in.
	paths map[string]bool
}

func newSite(files fs.FS, names []string) site {
	s := site{files: files, paths: map[string]bool{}}
	for _, name := range names {
		for ; !s.paths[name]; name = path.Dir(name) {
			s.paths[name] = true
		}
	}
	return s
}

// check returns what is wrong with the links of a page.
func (s site) check(page string) (problems []string, err error) {
	text, err := fs.ReadFile(s.files, page)
	if err != nil {
		return nil, err
	}
	for _, l := range links(string(text)) {
		if problem := s.follow(page, l.target); problem != "" {
			problems = append(problems, fmt.Sprintf("%s:%d: %s: %s", page, l.line, l.target, problem))
		}
	}
	return problems, nil
}

// follow tells why a link leads nowhere, or nothing.
func (s site) follow(page, target string) string {
	to, err := url.Parse(target)
	if err != nil {
		return "it is no link"
	}
	if to.Scheme != "" || to.Host != "" {
		if to.Scheme != "https" {
			return "it does not begin with https"
		}
		return "" // Whether it is there, only the network knows.
	}
	file := page
	if to.Path != "" {
		file = path.Join(path.Dir(page), to.Path)
	}
	if !s.paths[file] {
		return "there is no such file in the repository"
	}
	if to.Fragment == "" || path.Ext(file) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(s.files, file)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), to.Fragment) {
		return "there is no such heading"
	}
	return ""
}

// link is one link of a page.
type link struct {
	line   int
	target string
}

var (
	// inlineTarget is that of [text](target "title") and of an image, definedTarget that of [label]: target, and
	// taggedTarget that of an element of HTML.
	inlineTarget  = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?[^)]*\)`)
	definedTarget = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)`)
	taggedTarget  = regexp.MustCompile(`<(?:a|img)\s[^>]*(?:href|src)="([^"]*)"`)
	inlineCode    = regexp.MustCompile("`(?:[^`\n]|\n[^`\n])+`")
)

// links returns the links of a page, but for what looks like one in code.
func links(page string) []link {
	text := strings.Join(prose(page), "\n")
	text = inlineCode.ReplaceAllStringFunc(text, func(code string) string {
		return strings.Repeat("\n", strings.Count(code, "\n"))
	})
	var found []link
	for _, form := range []*regexp.Regexp{inlineTarget, definedTarget, taggedTarget} {
		for _, at := range form.FindAllStringSubmatchIndex(text, -1) {
			found = append(found, link{line: 1 + strings.Count(text[:at[2]], "\n"), target: text[at[2]:at[3]]})
		}
	}
	return found
}

var fence = regexp.MustCompile("^ *(`{3,}|~{3,})")

// prose returns the lines of a page, and empty ones in place of blocks of code.
func prose(page string) []string {
	lines, open := strings.Split(page, "\n"), ""
	for i, line := range lines {
		marker := fence.FindStringSubmatch(line)
		switch {
		case open == "" && marker != nil:
			open, lines[i] = marker[1], ""
		case open != "":
			if marker != nil && strings.HasPrefix(marker[1], open) {
				open = ""
			}
			lines[i] = ""
		}
	}
	return lines
}

var (
	heading  = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.*?)[\s#]*$`)
	linkText = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns what the headings of a page are known by.
func anchors(page string) []string {
	var found []string
	times := map[string]int{}
	for _, line := range prose(page) {
		match := heading.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		anchor := slug(match[1])
		if n := times[anchor]; n > 0 {
			found = append(found, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			found = append(found, anchor)
		}
		times[anchor]++
	}
	return found
}

// slug is GitHub's rule: lower case, hyphens for spaces, and of everything else only letters,
// digits, hyphens and underscores.
func slug(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Pc):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}

func TestSlug(t *testing.T) {
	for heading, want := range map[string]string{
		"Add a field":                      "add-a-field",
		"1. The API: `api/v1`":             "1-the-api-apiv1",
		"What the operator may do?":        "what-the-operator-may-do",
		"[Install](install.md) & *remove*": "install--remove",
		"snake_case-and-hyphen":            "snake_case-and-hyphen",
		"Größe":                            "größe",
	} {
		if got := slug(heading); got != want {
			t.Errorf("%s: got %s, want %s", heading, got, want)
		}
	}
}

// TestLinksThatLeadNowhere: each kind of mistake is found, where it is, and nothing else.
func TestLinksThatLeadNowhere(t *testing.T) {
	page := strings.Join([]string{
		"# Twice", "## Twice", "```sh", "# No heading, [no link](absent)", "```",
		"[a](b.md), [a](b.md#one), [a](#twice-1), [a](sub), [a](../README.md \"title\"), [a](https://example.com/#x)",
		"`[code](absent)`, `code that", "goes on [here](absent)`, ![picture](absent.png)",
		"[a](b.md#two)", "[a](http://example.com)", "[a](#no-heading)", "[a](../../outside)",
		"[label]: absent.md", "<img src=\"absent.svg\">", "[a](not-kept.txt)",
	}, "\n")
	files := fstest.MapFS{
		"docs/a.md": {Data: []byte(page)}, "docs/b.md": {Data: []byte("# One\n")}, "docs/sub/c.txt": {}, "README.md": {}, "docs/not-kept.txt": {},
	}
	got, err := newSite(files, []string{"docs/a.md", "docs/b.md", "docs/sub/c.txt", "README.md"}).check("docs/a.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"docs/a.md:10: http://example.com: it does not begin with https",
		"docs/a.md:11: #no-heading: there is no such heading",
		"docs/a.md:12: ../../outside: there is no such file in the repository",
		"docs/a.md:13: absent.md: there is no such file in the repository",
		"docs/a.md:14: absent.svg: there is no such file in the repository",
		"docs/a.md:15: not-kept.txt: there is no such file in the repository",
		"docs/a.md:8: absent.png: there is no such file in the repository",
		"docs/a.md:9: b.md#two: there is no such heading",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

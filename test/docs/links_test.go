// Package docs tests the documentation: its links, its claims, and its commands.
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

// TestEveryLinkHasATarget checks that every link in every Markdown file names an existing file and heading.
func TestEveryLinkHasATarget(t *testing.T) {
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
		t.Errorf("read %d pages, want at least 15", pages)
	}
}

// listFiles returns the files that git tracks or does not ignore. Another clone has no other files.
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
	// paths are the paths of the files and of their folders.
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

// check returns the problems of the links on a page.
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

// follow returns the problem of a link, or nothing.
func (s site) follow(page, target string) string {
	to, err := url.Parse(target)
	if err != nil {
		return "it is not a link"
	}
	if to.Scheme != "" || to.Host != "" {
		if to.Scheme != "https" {
			return "it does not begin with https"
		}
		return "" // The test does not use the network.
	}
	file := page
	if to.Path != "" {
		file = path.Join(path.Dir(page), to.Path)
	}
	if !s.paths[file] {
		return "the repository has no such file"
	}
	if to.Fragment == "" || path.Ext(file) != ".md" {
		return ""
	}
	text, err := fs.ReadFile(s.files, file)
	if err != nil {
		return err.Error()
	}
	if !slices.Contains(anchors(string(text)), to.Fragment) {
		return "the page has no such heading"
	}
	return ""
}

// link is a link on a page.
type link struct {
	line   int
	target string
}

var (
	// inlineTarget matches [text](target "title") and images, definedTarget [label]: target, and taggedTarget
	// HTML elements.
	inlineTarget  = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?[^)]*\)`)
	definedTarget = regexp.MustCompile(`(?m)^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)`)
	taggedTarget  = regexp.MustCompile(`<(?:a|img)\s[^>]*(?:href|src)="([^"]*)"`)
	inlineCode    = regexp.MustCompile("`(?:[^`\n]|\n[^`\n])+`")
)

// links returns the links on a page, except those in code.
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

// prose returns the lines of a page, with empty lines instead of code blocks.
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

// anchors returns the anchors of the headings on a page.
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

// slug follows the rule of GitHub: lower case, hyphens instead of spaces, and otherwise only letters,
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

func TestSlugFollowsGitHub(t *testing.T) {
	for heading, want := range map[string]string{
		"Add a field":                      "add-a-field",
		"1. The API: `api/v1`":             "1-the-api-apiv1",
		"What the operator may do?":        "what-the-operator-may-do",
		"[Install](install.md) & *remove*": "install--remove",
		"snake_case-and-hyphen":            "snake_case-and-hyphen",
		"Größe":                            "größe",
	} {
		if got := slug(heading); got != want {
			t.Errorf("slug of %q = %s, want %s", heading, got, want)
		}
	}
}

// TestCheckReportsEachKindOfBrokenLink checks the position of each problem, and that valid links have none.
func TestCheckReportsEachKindOfBrokenLink(t *testing.T) {
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
		"docs/a.md:11: #no-heading: the page has no such heading",
		"docs/a.md:12: ../../outside: the repository has no such file",
		"docs/a.md:13: absent.md: the repository has no such file",
		"docs/a.md:14: absent.svg: the repository has no such file",
		"docs/a.md:15: not-kept.txt: the repository has no such file",
		"docs/a.md:8: absent.png: the repository has no such file",
		"docs/a.md:9: b.md#two: the page has no such heading",
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("problems:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

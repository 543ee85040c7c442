// Package docs tests the documentation: its links, its references, and its commands.
package docs

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// TestEveryLinkHasATarget checks that every link in every Markdown file names an existing file and heading.
func TestEveryLinkHasATarget(t *testing.T) {
	exist := paths(t)
	for page := range exist {
		if path.Ext(page) != ".md" {
			continue
		}
		for _, l := range links(readFile(t, page)) {
			if problem := follow(t, exist, page, l.target); problem != "" {
				t.Errorf("%s:%d: %s: %s", page, l.line, l.target, problem)
			}
		}
	}
}

// follow returns the problem of a link, or nothing. It does not use the network.
func follow(t *testing.T, exist map[string]bool, page, target string) string {
	to, err := url.Parse(target)
	switch {
	case err != nil:
		return "it is not a link"
	case to.Scheme == "https":
		return ""
	case to.Scheme != "" || to.Host != "":
		return "it does not begin with https"
	}
	file := page
	if to.Path != "" {
		file = path.Join(path.Dir(page), to.Path)
	}
	if !exist[file] {
		return "the repository has no such file"
	}
	if to.Fragment != "" && path.Ext(file) == ".md" && !slices.Contains(anchors(readFile(t, file)), to.Fragment) {
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

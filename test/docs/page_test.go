// Package docs tests the documentation: its links, its commands, and its reference of fields.
package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extensionast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// exampleMark marks a block of commands that no test runs.
const exampleMark = "<!-- example -->"

// page is a Markdown file.
type page struct {
	links, anchors []string
	// subjects are the headings, and the first cells of the rows of tables.
	subjects []string
	blocks   []block
}

// block is a fenced block of code on a page.
type block struct {
	language, text string
	line           int    // The number of its first line.
	section        string // The heading of level 2 above it.
	example        bool   // exampleMark precedes it.
	// output is the expected output, if hasOutput is true: the block of the language console or text that follows.
	output    string
	hasOutput bool
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func readPage(t *testing.T, name string) (p page) {
	t.Helper()
	source := []byte(readFile(t, name))
	document := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	section := ""
	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := node.(type) {
		case *ast.Link:
			p.links = append(p.links, string(n.Destination))
		case *ast.Image:
			p.links = append(p.links, string(n.Destination))
		case *ast.AutoLink:
			p.links = append(p.links, string(n.URL(source)))
		case *ast.Heading:
			heading := plain(n, source)
			p.anchors, p.subjects = append(p.anchors, anchor(heading)), append(p.subjects, heading)
			if n.Level == 2 {
				section = heading
			}
		case *extensionast.TableRow:
			p.subjects = append(p.subjects, plain(n.FirstChild(), source))
		case *ast.FencedCodeBlock:
			b := block{language: string(n.Language(source)), text: string(n.Lines().Value(source)), section: section}
			if n.Lines().Len() > 0 {
				b.line = bytes.Count(source[:n.Lines().At(0).Start], []byte("\n")) + 1
			}
			switch before := node.PreviousSibling().(type) {
			case *ast.HTMLBlock:
				b.example = strings.TrimSpace(string(before.Lines().Value(source))) == exampleMark
			case *ast.FencedCodeBlock:
				if isOutput := b.language == "console" || b.language == "text"; isOutput && string(before.Language(source)) == "sh" {
					last := &p.blocks[len(p.blocks)-1]
					last.output, last.hasOutput = b.text, true
				}
			}
			p.blocks = append(p.blocks, b)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// commands returns the blocks of the language sh.
func (p page) commands() (all []block) {
	for _, b := range p.blocks {
		if b.language == "sh" {
			all = append(all, b)
		}
	}
	return all
}

// plain returns the text of a node without markup.
func plain(node ast.Node, source []byte) string {
	var content strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // The function returns no error.
		if part, isText := n.(*ast.Text); isText && entering {
			content.Write(part.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return content.String()
}

// anchor follows the rule of GitHub: lower case, hyphens instead of spaces, and otherwise only letters, digits, hyphens and underscores.
func anchor(heading string) string {
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

// pages returns the Markdown files that git does not ignore.
func pages(t *testing.T) []string {
	t.Helper()
	output, err := exec.Command("git", "-C", root, "grep", "--untracked", "--files-with-matches", ".", "--", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(output))
}

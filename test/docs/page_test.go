// Package docs tests the documentation: its links, its commands, and its reference of fields.
package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// needsMark marks a block of commands that no test on the local cluster runs, with what the block needs.
var needsMark = regexp.MustCompile(`^<!-- needs: \S.* -->$`)

// page is a Markdown file.
type page struct {
	links, anchors []string
	blocks         []block
}

// block is a fenced block of code on a page.
type block struct {
	language, text string
	line           int    // The number of its first line.
	section        string // The heading of level 2 above it.
	example        bool   // needsMark precedes it.
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
	document := goldmark.New(goldmark.WithParserOptions(parser.WithAutoHeadingID())).Parser().Parse(text.NewReader(source))
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
			// The anchors of GitHub keep underscores and letters beyond ASCII, of which no heading has one.
			id, _ := n.AttributeString("id")
			p.anchors = append(p.anchors, string(id.([]byte)))
			if n.Level == 2 {
				section = string(n.Lines().Value(source))
			}
		case *ast.FencedCodeBlock:
			b := block{language: string(n.Language(source)), text: string(n.Lines().Value(source)), section: section}
			if n.Lines().Len() > 0 {
				b.line = bytes.Count(source[:n.Lines().At(0).Start], []byte("\n")) + 1
			}
			switch before := node.PreviousSibling().(type) {
			case *ast.HTMLBlock:
				mark := strings.TrimSpace(string(before.Lines().Value(source)))
				if b.example = needsMark.MatchString(mark); b.language == "sh" && !b.example {
					t.Errorf("%s:%d: the mark %s does not say what the block needs", name, b.line, mark)
				}
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

// pages returns the Markdown files that git does not ignore.
func pages(t *testing.T) []string {
	t.Helper()
	output, err := exec.Command("git", "-C", root, "grep", "--untracked", "--files-with-matches", ".", "--", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(output))
}

package docs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

const (
	tutorial = "docs/getting-started.md"
	// tutorialNamespace is the namespace that the tutorial uses.
	tutorialNamespace = "echo-tutorial"
)

// block is a fenced block of commands on a page.
type block struct {
	// line is the first line of its commands.
	line int
	// section is the heading of level 2 above it.
	section  string
	commands string
	// output is the expected output, if hasOutput is true: the content of a fenced block of the
	// language console or text that follows immediately.
	output    string
	hasOutput bool
	// example is true if exampleMark precedes the block: no test runs it.
	example bool
}

// exampleMark marks a block of commands that no test runs.
const exampleMark = "<!-- example -->"

// blocks returns the fenced blocks of the language sh on a page, from top to bottom.
func blocks(page string) []block {
	var found []block
	section, follows := "", false
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if heading, isHeading := strings.CutPrefix(lines[i], "## "); isHeading {
			section = heading
		}
		indentation := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " "))]
		language, isFence := strings.CutPrefix(lines[i], indentation+"```")
		if !isFence {
			follows = follows && strings.TrimSpace(lines[i]) == ""
			continue
		}
		begin := i + 1
		for i = begin; i < len(lines) && lines[i] != indentation+"```"; i++ {
			lines[i] = strings.TrimPrefix(lines[i], indentation)
		}
		text := strings.Join(lines[begin:i], "\n")
		if follows && (language == "console" || language == "text") {
			found[len(found)-1].output, found[len(found)-1].hasOutput = text, true
		}
		if follows = language == "sh"; follows {
			example := begin > 1 && strings.TrimSpace(lines[begin-2]) == exampleMark
			found = append(found, block{line: begin + 1, section: section, commands: text, example: example})
		}
	}
	return found
}

var (
	// age matches a duration, as in the column AGE.
	age = regexp.MustCompile(`(^|\s)(?:\d+[dhms])+\b`)
	// padding matches the space between two columns, whose width depends on the age.
	padding = regexp.MustCompile(` {2,}`)
)

// matches reports whether an output equals the expected one. It ignores white space at the end of lines, empty lines at
// the end, and the width of columns. An age matches any word, and a line ... any number of lines.
func (b block) matches(output string) bool {
	var pattern strings.Builder
	for line := range strings.SplitSeq(trimmed(b.output), "\n") {
		if line == "..." {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(age.ReplaceAllString(regexp.QuoteMeta(line), `${1}\S+`) + `\n`)
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(trimmed(output) + "\n")
}

// trimmed returns a text without what matches ignores.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = padding.ReplaceAllString(strings.TrimRight(lines[i], " \t\r"), "  ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// endOfBlock is printed after each block, and by no command.
const endOfBlock = "=== end of block ==="

// script returns a script that runs the blocks in order, with a pause after each, as a reader makes
// it. The pause also lets the Service send requests to the pods that have become ready.
func script(blocks []block, pause time.Duration) string {
	var text strings.Builder
	text.WriteString("set -euo pipefail\n")
	for _, b := range blocks {
		fmt.Fprintf(&text, "%s\nprintf '\\n%s\\n'\nsleep %g\n", b.commands, endOfBlock, pause.Seconds())
	}
	return text.String()
}

// runBlocks runs the blocks in one bash, and reports the output of each block when it ends. It stops
// at the first command that fails.
func runBlocks(ctx context.Context, blocks []block, pause time.Duration, report func(block, string)) error {
	command := exec.CommandContext(ctx, "bash", "-c", script(blocks, pause))
	command.WaitDelay = time.Second // Processes that bash started may outlive it.
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer
	go func() { writer.CloseWithError(command.Run()) }()

	var output strings.Builder
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		if lines.Text() != endOfBlock {
			output.WriteString(lines.Text() + "\n")
			continue
		}
		report(blocks[0], output.String())
		blocks = blocks[1:]
		output.Reset()
	}
	err := lines.Err()
	if len(blocks) == 0 {
		return err
	}
	report(blocks[0], output.String())
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("the commands of line %d failed: %w", blocks[0].line, err)
}

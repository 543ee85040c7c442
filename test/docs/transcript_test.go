package docs

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	tutorial = root + "/docs/tutorial.md"
	// tutorialNamespace is the namespace that the tutorial uses.
	tutorialNamespace = "echo-tutorial"
)

// block is a fenced block of commands on a page.
type block struct {
	// line is the first line of its commands.
	line     int
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
	follows := false
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
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
			found = append(found, block{line: begin + 1, commands: text, example: example})
		}
	}
	return found
}

// age matches a duration, as in the column AGE.
var age = regexp.MustCompile(`(^|\s)(?:\d+[dhms])+\b`)

// matches reports whether an output equals the expected one. It ignores white space at the end of
// lines, and empty lines at the end. An age matches any word, and a line ... any number of lines.
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

func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t\r")
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

// TestTutorialIsValidBashAndDeletesItsNamespace also checks that the page has enough commands and outputs.
func TestTutorialIsValidBashAndDeletesItsNamespace(t *testing.T) {
	page, err := os.ReadFile(tutorial)
	if err != nil {
		t.Fatal(err)
	}
	all := blocks(string(page))
	outputs := 0
	for _, b := range all {
		if b.hasOutput {
			outputs++
		}
	}
	if len(all) < 15 || outputs < 10 {
		t.Fatalf("%s: found %d blocks of commands and %d outputs, want at least 15 and 10", tutorial, len(all), outputs)
	}
	if output, err := exec.Command("bash", "-n", "-c", script(all, 0)).CombinedOutput(); err != nil {
		t.Errorf("%s: bash cannot parse the commands: %s", tutorial, output)
	}
	if last := all[len(all)-1].commands; last != "kubectl delete namespace "+tutorialNamespace {
		t.Errorf("%s: last command = %q, want one that deletes namespace %s", tutorial, last, tutorialNamespace)
	}
}

func TestBlocksReturnsCommandsWithTheirOutput(t *testing.T) {
	page := strings.Join([]string{
		"# Title", "```console", "$ not expected", "```",
		"```sh", "one", "", "two", "```", "", "```console", "1", "2", "```",
		"```sh", "three", "```", "A sentence.", "```console", "an example", "```",
		"```yaml", "no: commands", "```", "```sh", "four", "```", "```text", "4", "```", "```text", "an example", "```",
		"- An item:", "", "  <!-- example -->", "  ```sh", "  five", "    six", "  ```",
	}, "\n")
	want := []block{
		{line: 6, commands: "one\n\ntwo", output: "1\n2", hasOutput: true},
		{line: 16, commands: "three"},
		{line: 26, commands: "four", output: "4", hasOutput: true},
		{line: 38, commands: "five\n  six", example: true},
	}
	if got := blocks(page); !slices.Equal(got, want) {
		t.Errorf("blocks = %+v, want %+v", got, want)
	}
}

func TestMatchesIgnoresAgesAndElidedLines(t *testing.T) {
	for _, test := range []struct {
		expected, output string
		want             bool
	}{
		{"one", "one\n", true},
		{"one", "One\n", false},
		{"one", "one\ntwo\n", false},
		{"one\ntwo", "one\n", false},
		{"one  \ntwo", "one\ntwo \t\n\n", true},
		{"", "", true},
		{"", "a warning\n", false},
		{"a.b", "axb", false},
		{"NAME   AGE\nhello  8s", "NAME   AGE\nhello  2m5s", true},
		{"NAME   AGE\nhello  8s", "NAME   AGE\nhello  <invalid>", true},
		{"NAME   AGE\nhello  8s", "NAME   AGE\nhello  a while", false},
		{"8s 9s", "1d 2h3m", true},
		{"in8s", "in9s", false},
		{"one\n...\nfour", "one\ntwo\nthree\nfour\n", true},
		{"one\n...\nfour", "one\nfour\n", true},
		{"...\nfour", "three\nfive\n", false},
	} {
		if got := (block{output: test.expected}).matches(test.output); got != test.want {
			t.Errorf("expected output %q, actual output %q: matches = %t, want %t", test.expected, test.output, got, test.want)
		}
	}
}

func TestRunBlocksReportsOutputUntilTheFirstFailure(t *testing.T) {
	all := []block{{commands: "greeting=hello\ncat <<EOF\ntext\nEOF"}, {commands: "echo $greeting >&2; printf no-newline"}, {line: 7, commands: "false\necho not reached"}}
	var outputs []string
	report := func(_ block, output string) { outputs = append(outputs, trimmed(output)) }

	if err := runBlocks(t.Context(), all[:2], 0, report); err != nil {
		t.Error(err)
	}
	if want := []string{"text", "hello\nno-newline"}; !slices.Equal(outputs, want) {
		t.Errorf("outputs = %q, want %q", outputs, want)
	}
	if err := runBlocks(t.Context(), all, 0, report); err == nil || !strings.Contains(err.Error(), "line 7 failed: exit status 1") {
		t.Errorf("error of a block that fails = %v, want one with its line and exit status", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := runBlocks(soon, []block{{line: 3, commands: "sleep 5"}}, 0, report); err == nil || !strings.Contains(err.Error(), "line 3 failed: context deadline exceeded") {
		t.Errorf("error of a block that exceeds the deadline = %v, want one with its line and the deadline", err)
	}
}

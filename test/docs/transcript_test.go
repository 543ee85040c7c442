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
	// tutorialNamespace is where the tutorial does everything.
	tutorialNamespace = "echo-tutorial"
)

// block is a fence of commands on a page.
type block struct {
	// line is where its commands begin.
	line     int
	commands string
	// output is what they should print, where it is known; it is what a fence of the language
	// console or text has that follows with nothing in between.
	output string
	known  bool
}

// blocks returns the fences of the language sh of a page, top to bottom.
func blocks(page string) []block {
	var found []block
	follows := false
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		language, isFence := strings.CutPrefix(lines[i], "```")
		if !isFence {
			follows = follows && strings.TrimSpace(lines[i]) == ""
			continue
		}
		begin := i + 1
		for i = begin; i < len(lines) && lines[i] != "```"; {
			i++
		}
		text := strings.Join(lines[begin:i], "\n")
		if follows && (language == "console" || language == "text") {
			found[len(found)-1].output, found[len(found)-1].known = text, true
		}
		if follows = language == "sh"; follows {
			found = append(found, block{line: begin + 1, commands: text})
		}
	}
	return found
}

// age is a duration, as in the column AGE.
var age = regexp.MustCompile(`(^|\s)(?:\d+[dhms])+\b`)

// matches tells whether an output is the known one. White space at the end of lines, and empty
// lines at the end, do not matter; an age is any word; a line ... is any number of lines.
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

// endOfBlock is printed after each block, and by nothing else.
const endOfBlock = "=== end of block ==="

// script runs the blocks one after the other, as somebody does who takes a moment between two of
// them; that is also how long it may take until the pods that are ready are those that answer.
func script(blocks []block, moment time.Duration) string {
	var text strings.Builder
	text.WriteString("set -euo pipefail\n")
	for _, b := range blocks {
		fmt.Fprintf(&text, "%s\nprintf '\\n%s\\n'\nsleep %g\n", b.commands, endOfBlock, moment.Seconds())
	}
	return text.String()
}

// play runs the blocks in one bash, and tells what each of them has printed as soon as it ends;
// the first command that fails ends it.
func play(ctx context.Context, blocks []block, moment time.Duration, tell func(block, string)) error {
	command := exec.CommandContext(ctx, "bash", "-c", script(blocks, moment))
	command.WaitDelay = time.Second // What bash has started may outlive it.
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
		tell(blocks[0], output.String())
		blocks = blocks[1:]
		output.Reset()
	}
	err := lines.Err()
	if len(blocks) == 0 {
		return err
	}
	tell(blocks[0], output.String())
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("the commands of line %d failed: %w", blocks[0].line, err)
}

// TestTutorialIsWhole: it can be read by bash, and it cleans up.
func TestTutorialIsWhole(t *testing.T) {
	page, err := os.ReadFile(tutorial)
	if err != nil {
		t.Fatal(err)
	}
	all := blocks(string(page))
	known := 0
	for _, b := range all {
		if b.known {
			known++
		}
	}
	if len(all) < 15 || known < 10 {
		t.Fatalf("%d blocks of commands were read, and the output of %d", len(all), known)
	}
	if output, err := exec.Command("bash", "-n", "-c", script(all, 0)).CombinedOutput(); err != nil {
		t.Errorf("bash cannot read it: %s", output)
	}
	if last := all[len(all)-1].commands; last != "kubectl delete namespace "+tutorialNamespace {
		t.Errorf("it ends with %q, and leaves its namespace behind", last)
	}
}

func TestBlocks(t *testing.T) {
	page := strings.Join([]string{
		"# Title", "```console", "$ not expected", "```",
		"```sh", "one", "", "two", "```", "", "```console", "1", "2", "```",
		"```sh", "three", "```", "A sentence.", "```console", "an example", "```",
		"```yaml", "no: commands", "```", "```sh", "four", "```", "```text", "4", "```", "```text", "an example", "```",
	}, "\n")
	want := []block{
		{line: 6, commands: "one\n\ntwo", output: "1\n2", known: true},
		{line: 16, commands: "three"},
		{line: 26, commands: "four", output: "4", known: true},
	}
	if got := blocks(page); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		known, output string
		want          bool
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
		if got := (block{output: test.known}).matches(test.output); got != test.want {
			t.Errorf("%q is known and %q printed: got %t, want %t", test.known, test.output, got, test.want)
		}
	}
}

func TestPlay(t *testing.T) {
	played := []block{{commands: "greeting=hello\ncat <<EOF\ntext\nEOF"}, {commands: "echo $greeting >&2; printf no-newline"}, {line: 7, commands: "false\necho not reached"}}
	var told []string
	tell := func(_ block, output string) { told = append(told, trimmed(output)) }

	if err := play(t.Context(), played[:2], 0, tell); err != nil {
		t.Error(err)
	}
	if want := []string{"text", "hello\nno-newline"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if err := play(t.Context(), played, 0, tell); err == nil || !strings.Contains(err.Error(), "line 7 failed: exit status 1") {
		t.Errorf("got %v", err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := play(soon, []block{{line: 3, commands: "sleep 5"}}, 0, tell); err == nil || !strings.Contains(err.Error(), "line 3 failed: context deadline exceeded") {
		t.Errorf("got %v", err)
	}
}

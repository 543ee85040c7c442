// Command recording runs a command, and writes what it prints as an SVG that shows each line when it was
// printed.
package main

import (
	"bufio"
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(args []string, terminal io.Writer) error {
	flags := flag.NewFlagSet("recording", flag.ContinueOnError)
	output := flags.String("o", "", "`file` to write the SVG to")
	title := flags.String("title", "", "`text` that describes the recording to screen readers")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *output == "" || *title == "" || flags.NArg() == 0 {
		return errors.New("want -o <file> -title <text> <command> [<argument> ...]")
	}
	lines, err := record(flags.Args(), terminal)
	if err != nil {
		return err
	}
	return os.WriteFile(*output, draw(*title, lines), 0o644) //nolint:gosec // A file of the repository.
}

// line is a line of output, and when it was printed.
type line struct {
	at   time.Duration
	text string
}

// maxPause replaces longer times without output.
const maxPause = 2 * time.Second

// record runs a command, copies its output to the terminal, and returns it. The root of the repository, which
// is the parent of the current directory, becomes $PWD.
func record(command []string, terminal io.Writer) (lines []line, err error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return nil, err
	}
	c := exec.Command(command[0], command[1:]...) //nolint:gosec // The caller chose the command.
	c.Stderr = os.Stderr
	stdout, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	var at time.Duration
	last := time.Now()
	for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
		now := time.Now()
		at, last = at+min(now.Sub(last), maxPause), now
		lines = append(lines, line{at, strings.ReplaceAll(scanner.Text(), root, "$PWD")})
		_, _ = fmt.Fprintln(terminal, scanner.Text())
	}
	return lines, c.Wait()
}

// Sizes in pixels, and the numbers of rows and columns that are visible.
const (
	rowHeight, columnWidth = 18, 8.4
	rows, columns          = 30, 110
	margin                 = 12
	// restart is the time from the last line to the first line again.
	restart = 8 * time.Second
)

var escape = regexp.MustCompile("\x1b\\[([0-9;]*)m")

// draw returns an SVG of the lines. The last rows stay visible, as in a terminal, and then it starts
// again.
func draw(title string, lines []line) []byte {
	var svg bytes.Buffer
	width, height := columns*columnWidth+2*margin, rows*rowHeight+2*margin
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" role="img" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" fill="#E6EDF3">`+"\n", width, height)
	fmt.Fprintf(&svg, "<title>%s</title>\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#0D1117\"/>\n", text(title))
	var end time.Duration
	if len(lines) > 0 {
		end = lines[len(lines)-1].at + restart
	}
	fmt.Fprintf(&svg, `<clipPath id="screen"><rect x="%d" y="%d" width="%.0f" height="%d"/></clipPath><g clip-path="url(#screen)"><g>`+"\n",
		margin, margin, columns*columnWidth, rows*rowHeight)
	for i, l := range lines {
		fmt.Fprintf(&svg, `<text x="%d" y="%d" xml:space="preserve"%s>%s%s</text>`+"\n",
			margin, margin+(i+1)*rowHeight-4, style(l.text), appear(l.at, end), text(cut(escape.ReplaceAllString(l.text, ""))))
	}
	if len(lines) > rows {
		svg.WriteString(scroll(lines, end))
	}
	svg.WriteString("</g></g></svg>\n")
	return svg.Bytes()
}

// appear shows a line from its time on, again in each turn.
func appear(at, end time.Duration) string {
	if at == 0 {
		return ""
	}
	return fmt.Sprintf(`<animate attributeName="opacity" calcMode="discrete" values="0;1" keyTimes="0;%.4f" dur="%.1fs" repeatCount="indefinite"/>`,
		at.Seconds()/end.Seconds(), end.Seconds())
}

// scroll moves the lines up when there are more than rows.
func scroll(lines []line, end time.Duration) string {
	values, times := []string{"0 0"}, []string{"0"}
	for i := rows; i < len(lines); i++ {
		values = append(values, fmt.Sprintf("0 %d", -(i-rows+1)*rowHeight))
		times = append(times, fmt.Sprintf("%.4f", lines[i].at.Seconds()/end.Seconds()))
	}
	return fmt.Sprintf(`<animateTransform attributeName="transform" type="translate" calcMode="discrete" values="%s" keyTimes="%s" dur="%.1fs" repeatCount="indefinite"/>`+"\n",
		strings.Join(values, ";"), strings.Join(times, ";"), end.Seconds())
}

// style returns the attributes for the first escape sequence of a line: bold, or cyan.
func style(line string) string {
	switch match := escape.FindStringSubmatch(line); {
	case match == nil:
		return ""
	case match[1] == "1":
		return ` font-weight="bold"`
	case match[1] == "36":
		return ` fill="#79C0FF"`
	default:
		return ""
	}
}

// cut cuts a line that is too long for a row.
func cut(line string) string {
	if r := []rune(line); len(r) > columns {
		return string(r[:columns-1]) + "…"
	}
	return line
}

func text(s string) string {
	var escaped strings.Builder
	_ = xml.EscapeText(&escaped, []byte(s)) // A strings.Builder returns no errors.
	return escaped.String()
}

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRunWritesEachLineWithItsTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recording.svg")
	var terminal strings.Builder
	err := run([]string{"-o", file, "-title", "A & B", "sh", "-c", `printf '\033[1mfirst\033[0m\n'; sleep 0.2; echo '<second>'; dirname "$PWD"`}, &terminal)
	if err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	svg := string(written)
	for _, want := range []string{"<title>A &amp; B</title>", `font-weight="bold"`, ">first<", "&lt;second&gt;", ">$PWD<", `values="0;1"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the SVG lacks %s:\n%s", want, svg)
		}
	}
	if !strings.Contains(terminal.String(), "<second>\n") {
		t.Errorf("terminal = %q, want the output of the command", terminal.String())
	}
	expectWellFormed(t, written)
}

func TestRunRejectsACommandThatFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recording.svg")
	if err := run([]string{"-o", file, "-title", "t", "sh", "-c", "echo partial; exit 3"}, io.Discard); err == nil {
		t.Error("run = nil, want an error")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a failed command was recorded")
	}
}

func TestDrawScrollsWhenThereAreMoreLinesThanRows(t *testing.T) {
	var lines []line
	for i := range rows + 2 {
		lines = append(lines, line{time.Duration(i) * time.Second, strings.Repeat("x", columns+10)})
	}
	svg := draw("title", lines)
	expectWellFormed(t, svg)
	if want := `values="0 0;0 -18;0 -36"`; !strings.Contains(string(svg), want) {
		t.Errorf("the SVG lacks %s", want)
	}
	if strings.Contains(string(svg), strings.Repeat("x", columns)) {
		t.Errorf("a line has more than %d characters", columns)
	}
}

func expectWellFormed(t *testing.T, svg []byte) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("the SVG is not well-formed: %s", err)
		}
	}
}

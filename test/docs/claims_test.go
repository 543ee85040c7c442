package docs

import (
	"fmt"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
	"github.com/kkloud-io/echo-operator/test/chaos/mutants"
)

// pages returns the Markdown files, except the changelog, which describes earlier versions.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range listFiles(t) {
		if path.Ext(name) == ".md" && name != "CHANGELOG.md" {
			names = append(names, name)
		}
	}
	return names
}

// rows returns the cells of the table of a page whose header starts with the cell.
func rows(t *testing.T, page, header string) (rows [][]string) {
	t.Helper()
	found := false
	for line := range strings.Lines(readFile(t, page)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "| "+header+" |"):
			found = true
		case !strings.HasPrefix(line, "|"):
			found = false
		case found && !strings.HasPrefix(line, "|---"):
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table with the header %q", page, header)
	}
	return rows
}

func TestTableOfMutantsMatchesThePatches(t *testing.T) {
	all, err := mutants.All()
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range all {
		want = append(want, fmt.Sprintf("%s | %d | %s", m.Name, m.Guarantee, m.Suite))
	}
	for _, row := range rows(t, "docs/reliability.md", "mutant: an operator that") {
		got = append(got, strings.Join(row[:3], " | "))
	}
	slices.Sort(want)
	slices.Sort(got)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("docs/reliability.md: the table of mutants has no row %q", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("docs/reliability.md: no patch in test/chaos/mutants has %q", line)
		}
	}
}

var (
	makeCommand = regexp.MustCompile(`(?:^|[\x60$ ])make ((?:bin/[a-z0-9.-]+|[a-z0-9-]+|[A-Z_]+=\S+|-[a-z]+)(?: (?:bin/[a-z0-9.-]+|[a-z0-9][a-z0-9-]*-[a-z0-9-]+|[A-Z_]+=\S+))*)`)
	makeTarget  = regexp.MustCompile(`(?m)^([a-zA-Z0-9_./%-]+(?: [a-zA-Z0-9_./%-]+)*):(?:[^=]|$)`)
)

// It reads commands in code: a line of a block, or text in backticks.
func TestEveryMakeTargetInDocumentsExists(t *testing.T) {
	targets := map[string]bool{}
	for _, file := range listFiles(t) {
		if file != "Makefile" && path.Ext(file) != ".mk" {
			continue
		}
		for _, match := range makeTarget.FindAllStringSubmatch(readFile(t, file), -1) {
			for name := range strings.FieldsSeq(match[1]) {
				targets[name] = true
			}
		}
	}
	commands := 0
	for _, page := range pages(t) {
		for _, code := range code(readFile(t, page)) {
			for _, match := range makeCommand.FindAllStringSubmatch(code, -1) {
				for word := range strings.FieldsSeq(match[1]) {
					if strings.Contains(word, "=") || strings.HasPrefix(word, "-") || strings.HasPrefix(word, "bin") {
						continue
					}
					commands++
					if !targets[word] {
						t.Errorf("%s: make has no target %s", page, word)
					}
				}
			}
		}
	}
	t.Logf("%d targets in documents", commands)
	if commands < 100 {
		t.Errorf("documents name %d targets of make, want at least 100", commands)
	}
}

var inline = regexp.MustCompile("`([^`]+)`")

// code returns the lines of code blocks, and text in backticks.
func code(text string) (code []string) {
	lines := strings.Split(text, "\n")
	for i, line := range prose(text) {
		if line == "" {
			code = append(code, lines[i])
		}
		for _, span := range inline.FindAllStringSubmatch(line, -1) {
			code = append(code, span[1])
		}
	}
	return code
}

func TestEveryMetricInDocumentsExists(t *testing.T) {
	metric := regexp.MustCompile(`echo_(?:operator|verify)_[a-z_]+`)
	exist := map[string]bool{}
	for _, name := range metric.FindAllString(readFile(t, "docs/metrics.md"), -1) {
		exist[name] = true
	}
	named := 0
	for _, page := range pages(t) {
		for _, name := range metric.FindAllString(readFile(t, page), -1) {
			named++
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if !exist[name] && !strings.HasSuffix(name, "_") {
				t.Errorf("%s: the operator has no metric %s", page, name)
			}
		}
	}
	t.Logf("%d metrics in documents", named)
	if named < 15 {
		t.Errorf("documents name %d metrics, want at least 15", named)
	}
}

// The defaults of the flags are those that the operator prints.
func TestTableOfFlagsMatchesTheOperator(t *testing.T) {
	command := exec.Command("go", "run", "./cmd", "--help")
	command.Dir = root
	help, _ := command.CombinedOutput() // The flag package exits with an error after the help.
	text := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^  -`).Split(string(help), -1)[1:] {
		name, _, _ := strings.Cut(part, " ")
		name, _, _ = strings.Cut(name, "\n")
		text["--"+name] = part
	}
	delete(text, "--kubeconfig")
	documented := map[string]bool{}
	for _, row := range rows(t, "docs/administration.md", "flag") {
		flag, value := strings.Trim(row[0], "`"), strings.Trim(strings.Fields(row[1])[0], "`;")
		documented[flag] = true
		description, exists := text[flag]
		if !exists {
			t.Errorf("docs/administration.md: the operator has no flag %s", flag)
			continue
		}
		// The help names no default of false, and those of the zap flags in words.
		if value == "off" || value == "false" || strings.HasPrefix(flag, "--zap-") {
			continue
		}
		if !strings.Contains(description, "(default "+value+")") && !strings.Contains(description, fmt.Sprintf("(default %q)", value)) {
			t.Errorf("docs/administration.md: flag %s has the default %s, but the operator prints %q", flag, value, description)
		}
	}
	for flag := range text {
		if !documented[flag] {
			t.Errorf("docs/administration.md does not describe flag %s", flag)
		}
	}
	if len(text) < 10 {
		t.Errorf("the operator prints %d flags, want at least 10:\n%s", len(text), help)
	}
}

func TestEveryReasonOfAConditionIsDocumented(t *testing.T) {
	reason := regexp.MustCompile(`(?m)^\s+Reason\w+\s*= "(\w+)"`)
	reasons := 0
	files, err := filepath.Glob(filepath.Join(root, "api/v1/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	page := readFile(t, "docs/echo.md")
	for _, file := range files {
		for _, match := range reason.FindAllStringSubmatch(readFile(t, "api/v1/"+filepath.Base(file)), -1) {
			reasons++
			if !strings.Contains(page, "`"+match[1]+"`") {
				t.Errorf("docs/echo.md does not describe the reason %s of %s", match[1], filepath.Base(file))
			}
		}
	}
	if reasons < 20 {
		t.Errorf("found %d reasons in api/v1, want at least 20", reasons)
	}
}

func TestPagesSayWhetherAReleaseIsPublished(t *testing.T) {
	published, err := releases.Published()
	if err != nil {
		t.Fatal(err)
	}
	for page, text := range map[string]string{"README.md": "No release is published yet", "docs/verify.md": "No\nsuch release exists yet"} {
		if says := strings.Contains(readFile(t, page), text); says != (len(published) == 0) {
			t.Errorf("%s contains %q: %t, but catalog/releases.yaml has %d published releases", page, text, says, len(published))
		}
	}
}

// A block of shell commands has no syntax error, names only manifests that exist, and waits with a time-out.
func TestShellBlocksAreValid(t *testing.T) {
	manifest := regexp.MustCompile(`-[fk] ((?:config|test|hack)/[\w./-]+)`)
	exist := map[string]bool{}
	for _, name := range listFiles(t) {
		for ; name != "."; name = path.Dir(name) {
			exist[name] = true
		}
	}
	found := 0
	for _, page := range pages(t) {
		for _, b := range blocks(readFile(t, page)) {
			found++
			check := exec.Command("bash", "-n")
			// A placeholder in angle brackets is not shell.
			check.Stdin = strings.NewReader(regexp.MustCompile(`<[a-z][a-z ./-]*>`).ReplaceAllString(b.commands, "placeholder"))
			if output, err := check.CombinedOutput(); err != nil {
				t.Errorf("%s:%d: %v\n%s\n%s", page, b.line, err, output, b.commands)
			}
			for line := range strings.Lines(strings.ReplaceAll(b.commands, "\\\n", " ")) {
				waits := strings.Contains(line, "kubectl") && (strings.Contains(line, " wait ") || strings.Contains(line, " rollout status "))
				if waits && !strings.Contains(line, "--timeout") {
					t.Errorf("%s:%d: %q waits without --timeout", page, b.line, line)
				}
			}
			for _, match := range manifest.FindAllStringSubmatch(b.commands, -1) {
				if !exist[strings.TrimSuffix(match[1], "/")] {
					t.Errorf("%s:%d: %s does not exist", page, b.line, match[1])
				}
			}
		}
	}
	t.Logf("%d blocks of shell commands", found)
	if found < 100 {
		t.Errorf("found %d blocks of shell commands, want at least 100", found)
	}
}

// TestTheRecordingShowsEachStepOfTheDemo fails if the demo changes and make recording did not run.
func TestTheRecordingShowsEachStepOfTheDemo(t *testing.T) {
	recording := readFile(t, "docs/images/demo.svg")
	steps := regexp.MustCompile(`(?m)^title '(.*)'$`).FindAllStringSubmatch(readFile(t, "hack/demo.sh"), -1)
	if len(steps) < 7 {
		t.Fatalf("hack/demo.sh has %d steps, want at least 7", len(steps))
	}
	for _, step := range steps {
		if !strings.Contains(recording, ">"+step[1]+"<") {
			t.Errorf("docs/images/demo.svg lacks the step %q: run make recording", step[1])
		}
	}
}

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// paths returns the files that git tracks or does not ignore, and their folders. Another clone has no other files.
func paths(t *testing.T) map[string]bool {
	t.Helper()
	output, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			continue // It is deleted, but not yet committed.
		}
		for ; !all[name]; name = path.Dir(name) {
			all[name] = true
		}
	}
	return all
}

// pages returns the Markdown files, except the changelog, which describes earlier versions.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for name := range paths(t) {
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

// The defaults of the flags are those that the operator prints.
func TestTableOfFlagsMatchesTheOperator(t *testing.T) {
	command := exec.Command("go", "run", "./cmd", "--help")
	command.Dir = root
	help, _ := command.CombinedOutput() // The flag package exits with an error after the help.
	text := map[string]string{}
	for _, part := range regexp.MustCompile(`(?m)^  -`).Split(string(help), -1)[1:] {
		text["--"+strings.Fields(part)[0]] = part
	}
	delete(text, "--kubeconfig")
	for _, row := range rows(t, "docs/configure.md", "flag") {
		flag, value := strings.Trim(row[0], "`"), strings.Trim(strings.Fields(row[1])[0], "`;")
		description, exists := text[flag]
		if !exists {
			t.Errorf("docs/configure.md: the operator has no flag %s", flag)
			continue
		}
		delete(text, flag)
		// The help names no default of false, and those of the zap flags in words.
		if value == "off" || value == "false" || strings.HasPrefix(flag, "--zap-") {
			continue
		}
		if !strings.Contains(description, "(default "+value+")") && !strings.Contains(description, fmt.Sprintf("(default %q)", value)) {
			t.Errorf("docs/configure.md: flag %s has the default %s, but the operator prints %q", flag, value, description)
		}
	}
	for flag := range text {
		t.Errorf("docs/configure.md does not describe flag %s", flag)
	}
}

func TestEveryMetricInDocumentsExists(t *testing.T) {
	metric := regexp.MustCompile(`echo_(?:operator|verify)_[a-z_]+`)
	exist := map[string]bool{}
	for _, name := range metric.FindAllString(readFile(t, "docs/metrics.md"), -1) {
		exist[name] = true
	}
	for _, page := range pages(t) {
		for _, name := range metric.FindAllString(readFile(t, page), -1) {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if !exist[name] && !strings.HasSuffix(name, "_") {
				t.Errorf("%s: the operator has no metric %s", page, name)
			}
		}
	}
}

func TestEveryReasonOfAConditionIsDocumented(t *testing.T) {
	reason := regexp.MustCompile(`(?m)^\s+Reason\w+\s*= "(\w+)"`)
	page := readFile(t, statusPage)
	for name := range paths(t) {
		if path.Dir(name) != "api/v1" || path.Ext(name) != ".go" {
			continue
		}
		for _, match := range reason.FindAllStringSubmatch(readFile(t, name), -1) {
			if !strings.Contains(page, "`"+match[1]+"`") {
				t.Errorf("%s does not describe the reason %s of %s", statusPage, match[1], name)
			}
		}
	}
}

// It reads the commands in blocks and in backticks.
func TestEveryMakeTargetInDocumentsExists(t *testing.T) {
	targets := map[string]bool{}
	rule := regexp.MustCompile(`(?m)^([\w./%-]+(?: [\w./%-]+)*):(?:[^=]|$)`)
	for file := range paths(t) {
		if file != "Makefile" && path.Ext(file) != ".mk" {
			continue
		}
		for _, match := range rule.FindAllStringSubmatch(readFile(t, file), -1) {
			for name := range strings.FieldsSeq(match[1]) {
				targets[name] = true
			}
		}
	}
	command := regexp.MustCompile("(?m)(?:^|^[A-Z_]+=\\S+ |`)make ([a-z][\\w./-]*)")
	for _, page := range pages(t) {
		text := strings.Join(prose(readFile(t, page)), "\n")
		for _, b := range blocks(readFile(t, page)) {
			text += "\n" + b.commands
		}
		for _, match := range command.FindAllStringSubmatch(text, -1) {
			// Pattern rules build the programs in bin.
			if !targets[match[1]] && !strings.HasPrefix(match[1], "bin/") {
				t.Errorf("%s: make has no target %s", page, match[1])
			}
		}
	}
}

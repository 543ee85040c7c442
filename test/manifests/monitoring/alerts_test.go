package monitoring

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const (
	root     = "../../.."
	runbooks = root + "/docs/runbooks"
)

func TestAlertsFireAndStaySilent(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not installed: it comes with Debian's package prometheus")
	}
	rules, err := RuleFile(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS("alerts")); err != nil {
		t.Fatal(err)
	}
	tests := []string{"test", "rules"}
	for _, alert := range names(t, "alerts/*.yaml") {
		tests = append(tests, alert+".yaml")
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, tests} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = dir
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
}

func TestEveryAlertIsTestedBothWays(t *testing.T) {
	same(t, "tests of alerts", names(t, "alerts/*.yaml"), alertNames(t))
	for _, alert := range alertNames(t) {
		var file struct {
			Tests []struct {
				Cases []struct {
					Alert    string `json:"alertname"`
					Expected []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		if err := yaml.Unmarshal(load(t, "alerts/"+alert+".yaml"), &file); err != nil {
			t.Fatal(err)
		}
		fires, silent := false, false
		for _, test := range file.Tests {
			// An alert that fires later in the same test is not silent, but late.
			firesHere := false
			for _, c := range test.Cases {
				if c.Alert != alert {
					t.Errorf("%s.yaml tests %s", alert, c.Alert)
				}
				firesHere = firesHere || len(c.Expected) > 0
			}
			fires, silent = fires || firesHere, silent || !firesHere
		}
		if !fires || !silent {
			t.Errorf("%s.yaml: a test in which it fires: %v; one in which it never does: %v", alert, fires, silent)
		}
	}
}

func TestEveryAlertSaysWhatToDo(t *testing.T) {
	alerts, err := Alerts(root)
	if err != nil {
		t.Fatal(err)
	}
	list := string(load(t, runbooks+"/README.md"))
	for _, alert := range alerts {
		severity := alert.Labels["severity"]
		if severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity is %q: it must be critical or warning", alert.Alert, severity)
		}
		for _, annotation := range []string{"summary", "description"} {
			if alert.Annotations[annotation] == "" {
				t.Errorf("%s has no %s", alert.Alert, annotation)
			}
		}
		url := "https://github.com/kkloud-io/echo-operator/blob/main/docs/runbooks/" + alert.Alert + ".md"
		if got := alert.Annotations["runbook_url"]; got != url {
			t.Errorf("%s: runbook_url is %q: it must be %q", alert.Alert, got, url)
		}
		if row := fmt.Sprintf("| [%[1]s](%[1]s.md) | %[2]s |", alert.Alert, severity); !strings.Contains(list, row) {
			t.Errorf("docs/runbooks/README.md has no row %q", row)
		}
	}
}

func TestEveryRunbookIsThatOfAnAlert(t *testing.T) {
	same(t, "runbooks", names(t, runbooks+"/*.md"), append(alertNames(t), "README"))
	for _, alert := range alertNames(t) {
		var sections []string
		for line := range strings.Lines(string(load(t, runbooks+"/"+alert+".md"))) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				sections = append(sections, strings.TrimSpace(title))
			}
		}
		if want := []string{"Meaning", "Impact", "Diagnosis", "Mitigation"}; !slices.Equal(sections, want) {
			t.Errorf("%s.md has the sections %v, want %v", alert, sections, want)
		}
	}
}

func alertNames(t *testing.T) []string {
	t.Helper()
	alerts, err := Alerts(root)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, alert := range alerts {
		all = append(all, alert.Alert)
	}
	return all
}

// names returns the names of the files that match, without their extensions.
func names(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, file := range files {
		all = append(all, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
	}
	return all
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("%s are of %v, want %v", what, got, want)
	}
}

func load(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

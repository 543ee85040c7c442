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

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

const runbooks = repo.Root + "/docs/runbooks"

func TestAlertsFireAsTheirPromtoolTestsExpect(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not on the PATH: `make monitoring-check` unpacks it from the Debian package prometheus")
	}
	rules, err := RuleFile(repo.Root)
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
	for _, alert := range baseNames(t, "alerts/*.yaml") {
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

func TestEveryAlertHasFiringAndNonFiringTest(t *testing.T) {
	repo.Same(t, "alerts that have a promtool test", baseNames(t, "alerts/*.yaml"), alertNames(t))
	for _, alert := range alertNames(t) {
		var file struct {
			Tests []struct {
				Cases []struct {
					Alert    string `json:"alertname"`
					Expected []any  `json:"exp_alerts"`
				} `json:"alert_rule_test"`
			} `json:"tests"`
		}
		if err := yaml.Unmarshal(repo.Read(t, "alerts/"+alert+".yaml"), &file); err != nil {
			t.Fatal(err)
		}
		fires, doesNotFire := false, false
		for _, test := range file.Tests {
			// A test in which the alert fires at a later time does not count as a non-firing test.
			firesHere := false
			for _, c := range test.Cases {
				if c.Alert != alert {
					t.Errorf("alerts/%s.yaml tests alert %s, want only %[1]s", alert, c.Alert)
				}
				firesHere = firesHere || len(c.Expected) > 0
			}
			fires, doesNotFire = fires || firesHere, doesNotFire || !firesHere
		}
		if !fires || !doesNotFire {
			t.Errorf("alerts/%s.yaml: has a firing test: %t, has a non-firing test: %t; want both", alert, fires, doesNotFire)
		}
	}
}

func TestEveryAlertHasSeverityTextsAndRunbookURL(t *testing.T) {
	alerts, err := Alerts(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	list := string(repo.Read(t, runbooks+"/README.md"))
	for _, alert := range alerts {
		severity := alert.Labels["severity"]
		if severity != "critical" && severity != "warning" {
			t.Errorf("alert %s: severity is %q, want critical or warning", alert.Alert, severity)
		}
		for _, annotation := range []string{"summary", "description"} {
			if alert.Annotations[annotation] == "" {
				t.Errorf("alert %s has no annotation %s", alert.Alert, annotation)
			}
		}
		url := "https://github.com/kkloud-io/echo-operator/blob/main/docs/runbooks/" + alert.Alert + ".md"
		if got := alert.Annotations["runbook_url"]; got != url {
			t.Errorf("alert %s: runbook_url is %q, want %q", alert.Alert, got, url)
		}
		if row := fmt.Sprintf("| [%[1]s](%[1]s.md) | %[2]s |", alert.Alert, severity); !strings.Contains(list, row) {
			t.Errorf("docs/runbooks/README.md has no row %q", row)
		}
	}
}

func TestEveryAlertHasRunbookWithAllSections(t *testing.T) {
	repo.Same(t, "runbooks", baseNames(t, runbooks+"/*.md"), append(alertNames(t), "README"))
	for _, alert := range alertNames(t) {
		var sections []string
		for line := range strings.Lines(string(repo.Read(t, runbooks+"/"+alert+".md"))) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				sections = append(sections, strings.TrimSpace(title))
			}
		}
		if want := []string{"Meaning", "Impact", "Diagnosis", "Mitigation"}; !slices.Equal(sections, want) {
			t.Errorf("docs/runbooks/%s.md: sections are %v, want %v", alert, sections, want)
		}
	}
}

func alertNames(t *testing.T) []string {
	t.Helper()
	alerts, err := Alerts(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, alert := range alerts {
		all = append(all, alert.Alert)
	}
	return all
}

// baseNames returns the names, without extension, of the files that match.
func baseNames(t *testing.T, pattern string) []string {
	t.Helper()
	var names []string
	for _, file := range repo.Glob(t, pattern) {
		names = append(names, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)))
	}
	return names
}

package releases

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFilesAreReadAsTheyWereReleased(t *testing.T) {
	releases, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range releases {
		files, err := release.Files("bundle")
		if err != nil {
			t.Fatal(err)
		}
		var csv string
		for _, file := range files {
			if strings.HasSuffix(file, ".clusterserviceversion.yaml") {
				csv = file
			}
		}
		text, err := release.File(csv)
		if err != nil {
			t.Fatal(err)
		}
		if want := "\n  version: " + release.Version + "\n"; !strings.Contains(string(text), want) {
			t.Errorf("commit %s: %s is not that of version %s", release.Commit, csv, release.Version)
		}
	}
}

func TestLoadSaysWhatIsWrong(t *testing.T) {
	commit := strings.Repeat("0", 40)
	for name, c := range map[string]struct{ list, want string }{
		"missing history": {"- {version: 1.2.3, commit: " + commit + "}", "run `git fetch --unshallow`"},
		"no release":      {"", "lists no release"},
		"unknown field":   {"- {version: 1.2.3, comit: " + commit + "}", `unknown field "comit"`},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if _, err := git(root, "init", "-q"); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(root, List)
			if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.list), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := load(root); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that says %q", err, c.want)
			}
		})
	}
}

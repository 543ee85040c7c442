package releases

import (
	"os"
	"os/exec"
	"testing"
)

// It makes a repository with a release, after which a file has changed.
const repository = `set -e; mkdir bundle catalog; echo old >bundle/crd.yaml
git init -q; git add .; git -c user.name=t -c user.email=t@example.com commit -qm release
echo "- {version: 1.0.0, rollsServers: none, commit: $(git rev-parse HEAD)}" >catalog/releases.yaml
echo "- {version: 1.1.0, rollsServers: all}" >>catalog/releases.yaml; echo new >bundle/crd.yaml`

func TestPublishedReturnsReleasesWithFilesOfTheirCommits(t *testing.T) {
	t.Chdir(t.TempDir())
	if output, err := exec.Command("sh", "-c", repository).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	published, err := Published()
	if err != nil || len(published) != 1 || published[0].Version != "1.0.0" {
		t.Fatalf("Published() = %v, %v, want only 1.0.0", published, err)
	}
	text, err := published[0].File("bundle/crd.yaml")
	if string(text) != "old\n" {
		t.Errorf("File() = %q, %v, want that of the commit", text, err)
	}
	if err := published[0].Extract(".", "bundle"); err != nil {
		t.Error(err)
	}
	if text, err = os.ReadFile("crd.yaml"); string(text) != "old\n" {
		t.Errorf("extracted file = %q, %v, want that of the commit", text, err)
	}
}

//go:build e2e

package docs

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

const (
	// tutorialTime is the time that the tutorial states.
	tutorialTime = 5 * time.Minute
	// pause is the time between two blocks.
	pause = time.Second
)

// TestTutorial runs every command of the tutorial on the cluster of KUBECONFIG, which
// has the operator, and compares the output.
func TestTutorial(t *testing.T) {
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(tutorial)
	if err != nil {
		t.Fatal(err)
	}
	removeTutorial(t) // A failed run leaves it.
	t.Cleanup(func() { removeTutorial(t) })
	ctx, cancel := context.WithTimeout(t.Context(), tutorialTime)
	defer cancel()
	err = runBlocks(ctx, blocks(string(page)), pause, func(b block, output string) {
		t.Logf("line %d:\n%s\n\n%s", b.line, b.commands, output)
		if b.hasOutput && !b.matches(output) {
			t.Errorf("%s:%d: output =\n%s\nwant:\n%s", tutorial, b.line, output, b.output)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func removeTutorial(t *testing.T) {
	output, err := exec.Command("kubectl", "delete", "namespace", tutorialNamespace, "--ignore-not-found").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, output)
	}
}

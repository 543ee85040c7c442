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
	// tutorialTime is what a reader is told that it takes.
	tutorialTime = 5 * time.Minute
	// moment is what a reader takes between two blocks.
	moment = time.Second
)

// TestTutorial runs every command of the tutorial on the cluster of the KUBECONFIG, which has the
// operator, and compares what it prints.
func TestTutorial(t *testing.T) {
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(tutorial)
	if err != nil {
		t.Fatal(err)
	}
	removeTutorial(t) // A run that failed has left it.
	t.Cleanup(func() { removeTutorial(t) })
	ctx, cancel := context.WithTimeout(t.Context(), tutorialTime)
	defer cancel()
	err = play(ctx, blocks(string(page)), moment, func(b block, output string) {
		t.Logf("line %d:\n%s\n\n%s", b.line, b.commands, output)
		if b.known && !b.matches(output) {
			t.Errorf("line %d: that is not what the tutorial shows:\n%s", b.line, b.output)
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

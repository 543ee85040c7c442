//go:build e2e

package docs

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

const (
	// tutorialTime is twice the time that the tutorial states: other tests run beside it.
	tutorialTime = 10 * time.Minute
	// pause is the time between two blocks.
	pause = time.Second
)

// TestTutorial runs every command of the tutorial on the cluster of KUBECONFIG, which
// has the operator, and compares the output.
func TestTutorial(t *testing.T) {
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
	remove := func() { run(t, "kubectl", "delete", "namespace", tutorialNamespace, "--ignore-not-found") }
	remove() // A failed run leaves it.
	t.Cleanup(remove)
	ctx, cancel := context.WithTimeout(t.Context(), tutorialTime)
	defer cancel()
	runDocument(ctx, t, tutorial, blocks(readFile(t, tutorial)))
}

// runDocument runs the commands of a page and compares their output.
func runDocument(ctx context.Context, t *testing.T, page string, commands []block) {
	t.Helper()
	err := runBlocks(ctx, commands, pause, func(b block, output string) {
		t.Logf("line %d:\n%s\n\n%s", b.line, b.commands, output)
		if b.hasOutput && !b.matches(output) {
			t.Errorf("%s:%d: output =\n%s\nwant:\n%s", page, b.line, output, b.output)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPages runs the commands of the other pages on that cluster, each page or group of sections in a namespace of its own.
func TestPages(t *testing.T) {
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	run(t, "sh", "-c", "cp $KUBECONFIG "+kubeconfig)
	t.Setenv("KUBECONFIG", kubeconfig)
	for i, page := range runPages {
		t.Run(strings.Join(append([]string{page.name}, page.sections...), " "), func(t *testing.T) {
			namespace := fmt.Sprint("echo-page-", i)
			run(t, "kubectl", "delete", "namespace", namespace, "--ignore-not-found") // A failed run leaves it.
			run(t, "kubectl", "create", "namespace", namespace)
			t.Cleanup(func() { run(t, "kubectl", "delete", "namespace", namespace, "--wait=false") })
			run(t, "kubectl", "config", "set-context", "--current", "--namespace="+namespace)
			replace := strings.NewReplacer(append([]string{"<namespace>", namespace, demoNamespace, namespace, "<name>", "hello"}, page.replace...)...)
			all := []block{{commands: "cd " + t.TempDir() + "\n" + page.setup}}
			for _, b := range blocks(readFile(t, page.name)) {
				if b.commands = replace.Replace(b.commands); page.runs(b.section) && !b.example {
					all = append(all, b)
				}
			}
			all = append(all, block{commands: "kubectl -n echo-operator-system rollout status deployment/echo-operator-controller-manager --timeout=2m"})
			ctx, cancel := context.WithTimeout(t.Context(), tutorialTime)
			defer cancel()
			err := runBlocks(ctx, all, 0, func(b block, output string) { t.Logf("line %d:\n%s\n\n%s", b.line, b.commands, output) })
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func run(t *testing.T, command ...string) {
	t.Helper()
	if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, output)
	}
}

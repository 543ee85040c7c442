//go:build e2e

package docs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

// registryAddress is the address of the registry in the README.
const registryAddress = "localhost:5001"

// timeout is twice the time that the tutorial states: other tests run beside it.
const timeout = 10 * time.Minute

// TestQuickStart runs the quick start of the README and then the transcript exactly as printed, on the cluster of KUBECONFIG,
// which must not have the operator. On the local cluster, registryAddress is the cluster's registry.
func TestQuickStart(t *testing.T) {
	checkCluster(t)
	if testcluster.IsLocal(root) {
		useLocalRegistry(t)
	}
	commands := slices.DeleteFunc(readPage(t, quickStart).commands(), func(b block) bool { return b.example })
	// The transcript has the first commands of a user, who only knows the introduction of Echoes.
	transcript := readPage(t, "test/docs/testdata/transcript.md").commands()
	t.Chdir(root)
	for _, variable := range []string{"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "GOFLAGS"} { // Those of the make that runs this test.
		t.Setenv(variable, "")
	}
	for i := range commands { // Only the last line is known before.
		commands[i].output = "...\n" + commands[i].output
	}
	runBlocks(t, commands, 2*time.Hour)
	runBlocks(t, transcript, timeout)
}

// useLocalRegistry forwards registryAddress to the registry of the local cluster, which has no TLS and no docker daemon.
func useLocalRegistry(t *testing.T) {
	t.Helper()
	bin, err := filepath.Abs(root + "/bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTAINER_TOOL", "buildah --root "+bin+"/images --runroot "+bin+"/images/run")
	registry, err := os.ReadFile(bin + "/cluster/registry")
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", registryAddress)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: strings.TrimSpace(string(registry))})
	server := &http.Server{Handler: forward, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
}

// TestTutorial runs every command of the tutorial on the cluster of KUBECONFIG, which has the operator, and compares the output.
func TestTutorial(t *testing.T) {
	checkCluster(t)
	remove := func() { run(t, "kubectl", "delete", "namespace", "echo-tutorial", "--ignore-not-found") }
	remove() // A failed run leaves it.
	t.Cleanup(remove)
	runBlocks(t, readPage(t, tutorial).commands(), timeout)
}

// TestPages runs the commands of the other pages on that cluster, except for examples: each page, and each section of the runbooks, in a
// namespace of its own. test/e2e/helm runs those of docs/helm.md.
func TestPages(t *testing.T) {
	checkCluster(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	run(t, "sh", "-c", "cp $KUBECONFIG "+kubeconfig)
	t.Setenv("KUBECONFIG", kubeconfig)
	config, err := filepath.Abs(root + "/config")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run(t, "kubectl", "delete", "namespace", "olm-canary", "--ignore-not-found") })
	units := map[string][]block{}
	for _, name := range pages(t) {
		if filepath.Dir(name) != "docs" || name == tutorial || name == "docs/helm.md" {
			continue
		}
		for _, b := range readPage(t, name).commands() {
			unit := name
			if name == runbooks {
				unit = b.section
			}
			if !b.example {
				units[unit] = append(units[unit], b)
			}
		}
	}
	for i, unit := range slices.Sorted(maps.Keys(units)) {
		t.Run(unit, func(t *testing.T) {
			namespace := fmt.Sprint("echo-page-", i)
			run(t, "kubectl", "delete", "namespace", namespace, "--ignore-not-found") // A failed run leaves it.
			run(t, "kubectl", "create", "namespace", namespace)
			t.Cleanup(func() { run(t, "kubectl", "delete", "namespace", namespace, "--wait=false") })
			run(t, "kubectl", "config", "set-context", "--current", "--namespace="+namespace)
			placeholders := strings.NewReplacer("<namespace>", namespace, demoNamespace, namespace, "<name>", "hello",
				"<layer>", "dns", "<kind>", "service", "<object>", "echo-hello")
			all := []block{{text: "cd " + t.TempDir() + "\nln -s " + config + "\n" + cmp.Or(setups[unit], hello)}}
			for _, b := range units[unit] {
				all = append(all, block{text: placeholders.Replace(b.text), line: b.line})
			}
			all = append(all, block{text: "kubectl -n echo-operator-system rollout status deployment/echo-operator-controller-manager --timeout=2m"})
			runBlocks(t, all, timeout)
		})
	}
}

func checkCluster(t *testing.T) {
	t.Helper()
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, command ...string) {
	t.Helper()
	if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, output)
	}
}

// endOfBlock is printed after each block, and by no command.
const endOfBlock = "\n=== end of block ===\n"

// runBlocks runs the blocks in one bash, until the first command that fails, and compares their output. A second after each
// block lets the Service send requests to the pods that have become ready.
func runBlocks(t *testing.T, blocks []block, limit time.Duration) {
	t.Helper()
	script := "set -euo pipefail\n"
	for _, b := range blocks {
		script += fmt.Sprintf("%s\nprintf %%s '%s'\nsleep 1\n", b.text, endOfBlock)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", script)
	command.WaitDelay = time.Second // Processes that bash started may outlive it.
	output, err := command.CombinedOutput()
	outputs := strings.Split(string(output), endOfBlock)
	for i, b := range blocks[:min(len(blocks), len(outputs))] {
		t.Logf("line %d:\n%s\n%s", b.line, b.text, outputs[i])
		if failed := i == len(outputs)-1; failed {
			t.Errorf("the commands of line %d failed: %v", b.line, err)
		} else if b.hasOutput && !b.matches(outputs[i]) {
			t.Errorf("line %d: output =\n%s\nwant:\n%s", b.line, outputs[i], b.output)
		}
	}
}

// age matches a duration, as in the column AGE.
var age = regexp.MustCompile(`(^|\s)(\d+[dhms])+\b`)

// matches reports whether an output equals the expected one, except for ages and white space. A line ... stands for any number
// of lines.
func (b block) matches(output string) bool {
	normalized := func(text string) string {
		normal := ""
		for line := range strings.Lines(strings.TrimSpace(text)) {
			normal += strings.Join(strings.Fields(age.ReplaceAllString(line, "${1}AGE")), " ") + "\n"
		}
		return normal
	}
	anyLines := regexp.MustCompile(`(?m)^\\\.\\\.\\\.$\n`)
	pattern := anyLines.ReplaceAllString(regexp.QuoteMeta(normalized(b.output)), `(.*\n)*`)
	return regexp.MustCompile(`^` + pattern + `$`).MatchString(normalized(output))
}

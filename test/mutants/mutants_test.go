// Package mutants tests the tests: each mutant is the operator with a planted bug, which one of the other tests has to find.
package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var run = flag.Bool("mutants", false, "run the tests that have to find the mutants; without it, only their texts are looked for")

// mutant is a planted bug.
type mutant struct {
	// name completes the sentence "an operator that ...".
	name string
	// guarantee is the number of the one in docs/guarantees.md that it violates.
	guarantee int
	// file has the text before, which is replaced by after.
	file, before, after string
	// finder is the test that finds it: a package of the operator or of the tests, and the pattern of a test or, of the controller's, of
	// a spec.
	finder, pattern string
}

var mutants = []mutant{
	{
		"writes in steady state", 1, "internal/children/difference.go",
		"		return desired, false\n	}\n	return desired, !equality", "		return desired, true\n	}\n	return desired, !equality",
		"test/explore", "TestExplore/edit",
	},
	{
		"adopts objects by their name", 2, "internal/children/meta.go",
		"return metav1.GetControllerOf(object) == nil &&", "return true || metav1.GetControllerOf(object) == nil &&",
		"internal/children", "",
	},
	{
		"never adopts an orphan", 2, "internal/children/meta.go",
		"return metav1.GetControllerOf(object) == nil &&", "return false && metav1.GetControllerOf(object) == nil &&",
		"internal/controller", "is adopted without",
	},
	{
		"does not revert drift", 3, "internal/controller/write.go",
		"	if !changed {\n		return nil\n	}\n	c.overridden = c.accepted()", "	if !changed || children.EchoGeneration(live) == c.echo.Generation {\n		return nil\n	}\n	c.overridden = c.accepted()",
		"test/explore", "TestExplore/drift",
	},
	{
		"leaves a paused Deployment paused", 3, "internal/children/deployment.go",
		"	spec.Paused = false\n", "",
		"internal/children", "",
	},
	{
		"removes containers of external writers", 3, "internal/children/deployment.go",
		"	server := mutatePod(&spec.Template.Spec", "	spec.Template.Spec.Containers = spec.Template.Spec.Containers[:min(1, len(spec.Template.Spec.Containers))]\n	server := mutatePod(&spec.Template.Spec",
		"internal/children", "",
	},
	{
		"does not delete an unwanted child", 4, "internal/controller/write.go",
		"	if c.mustWait(\"\") {", "	if true {",
		"test/explore", "TestExplore/route",
	},
	{
		"does not reset a removed field", 4, "internal/children/container.go",
		"	setResources(container, echo.Spec.Resources, defaultServerResources)\n",
		"	if len(echo.Spec.Resources.Limits) > 0 || len(container.Resources.Limits) == 0 {\n		setResources(container, echo.Spec.Resources, defaultServerResources)\n	}\n",
		"internal/children", "",
	},
	{
		"does not look for a child that lost its label", 4, "internal/controller/find.go",
		"	if c.readOnly || c.isWanted {", "	if true {",
		"internal/controller", "no longer wanted, and whose label",
	},
	{
		"trusts a stale Echo", 5, "internal/controller/write.go",
		"	var newest echov1.Echo\n", "	if true {\n		return nil\n	}\n	var newest echov1.Echo\n",
		"test/explore", "TestExplore/edit_with_a_crash",
	},
	{
		"writes without a resource version", 5, "internal/children/difference.go",
		"json.Marshal(slices.Insert(operations, 0, sameVersion))", "json.Marshal(slices.Insert(operations, 0, sameVersion)[1:])",
		"test/explore", "TestExplore",
	},
	{
		"writes an earlier spec over a later one", 5, "internal/controller/write.go",
		"	if children.EchoGeneration(live) <= rec.echo.Generation {", "	if true {",
		"test/explore", "TestExplore/edit_with_a_crash",
	},
	{
		"reads a status from before its own write", 6, "internal/controller/echo_controller.go",
		"	if r.versions.IsStale(echoKind,", "	if false && r.versions.IsStale(echoKind,",
		"internal/controller", "of a stale Echo",
	},
	{
		"trusts a child from before its own write", 6, "internal/controller/find.go",
		"	case c.versions.IsStale(", "	case false && c.versions.IsStale(",
		"test/explore", "TestExplore",
	},
	{
		"reports Ready too early", 6, "internal/status/assess.go",
		"	a.findEarlierPods()\n	a.isRolledOut", "	a.isAvailable, a.IsUpdated = true, true\n	a.findEarlierPods()\n	a.isRolledOut",
		"internal/status", "",
	},
	{
		"forgets pods that stop", 9, "internal/status/assess.go",
		"		if pod.DeletionTimestamp != nil && (hasOldTemplate", "		if false && (hasOldTemplate",
		"test/explore", "TestExplore/edit",
	},
	{
		"forgets pods whose deletion its cache lacks", 9, "internal/status/assess.go",
		"	count(old, a.progressing.LastUpdateTime.Add(deadline))", "	_ = deadline",
		"test/explore", "TestExplore/edit",
	},
	{
		"is ready while it pauses before it reverts drift", 6, "internal/controller/write.go",
		"		if c.failure == nil && mayServeAnotherResponse {", "		if false && mayServeAnotherResponse {",
		"internal/controller", "waits before it repeats a correction",
	},
	{
		"does not report an override", 6, "internal/controller/write.go",
		"		c.overridden = difference.Overridden(c.kind.Name)\n", "",
		"internal/controller", "accepts another field that admission changed",
	},
	{
		"is ready although admission changed the response", 6, "internal/controller/write.go",
		"		if len(difference.ResponseFields) > 0 {", "		if false {",
		"internal/controller", "reports a field that determines the response",
	},
	{
		"waits for a verifier without saying for what", 6, "internal/status/verification.go",
		"	text = cmp.Or(text, fmt.Sprintf(\"The verifier %s has", "	if text != \"\" {\n		return \"\"\n	}\n	text = cmp.Or(text, fmt.Sprintf(\"The verifier %s has",
		"internal/status", "",
	},
	{
		"takes only some codes for a rejection", 6, "internal/controller/rejections.go",
		"	if !isResponse || isTemporary {", "	if !isResponse || isTemporary || response.Status().Code >= http.StatusInternalServerError {",
		"test/chaos", "TestWebhookFails/creation/hangs_until_its_timeout_of_10_s",
	},
	{
		"takes a slow conflict for a stale cache", 6, "internal/controller/rejections.go",
		"	isStale := isReplaced || isChanged && took <= slowFailure", "	isStale := isReplaced || isChanged",
		"internal/controller", "of a stale child reports a rejection that came late",
	},
	{
		"gives a namespace every worker", 7, "internal/queue/seats.go",
		"	case n.occupied < s.PerNamespace:", "	case true:",
		"internal/queue", "",
	},
	{
		"retries a rejection without a pause", 7, "internal/backoff/pause.go",
		"	p.next = time.Now().Add(p.length)", "	p.next = time.Now()",
		"internal/backoff", "",
	},
	{
		"reverts repeated drift without a pause", 7, "internal/backoff/pause.go",
		"	if p.writes < burst {", "	if burst > 1 {",
		"internal/backoff", "",
	},
	{
		"does not retry after an error", 8, "internal/controller/echo_controller.go",
		"		return ctrl.Result{}, errors.New(status.Truncate(err.Error(), maxNote))", "		return ctrl.Result{}, nil",
		"test/explore", "TestExplore/edit_with_a_fault",
	},
	{
		"waits for ever for the event of its write", 8, "internal/expectations/versions.go",
		"	if !lacks || time.Since(w.at) > limit {", "	if !lacks || false && time.Since(w.at) > limit {",
		"internal/expectations", "",
	},
	{
		"keeps its lease when it stops", 8, "cmd/main.go",
		"LeaderElectionReleaseOnCancel: true", "LeaderElectionReleaseOnCancel: false",
		"test/chaos", "TestSuccession/SIGTERM",
	},
}

var root = filepath.Join("..", "..")

// Not parallel: the tests have their own parallelism.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			directory := t.TempDir()
			overlay := m.overlay(t, directory)
			if !*run {
				return
			}
			if output, err := command("", "go", "build", "-overlay", overlay, "-o", filepath.Join(directory, "manager"), "./cmd"); err != nil {
				t.Fatalf("it does not compile: %v\n%s", err, output)
			}
			start := time.Now()
			module, arguments := m.test(overlay, directory)
			output, err := command(module, "go", arguments...)
			if err == nil {
				t.Errorf("go %s did not find it:\n%s", strings.Join(arguments, " "), output)
			} else if !bytes.Contains(output, []byte("FAIL")) {
				t.Errorf("go %s: %v\n%s", strings.Join(arguments, " "), err, output)
			}
			t.Logf("%s, %s: %.0f s", m.finder, m.pattern, time.Since(start).Seconds())
		})
	}
}

// overlay writes the changed file, and an overlay for the Go command that names it. The project itself does not change.
func (m mutant) overlay(t *testing.T, directory string) string {
	original, err := filepath.Abs(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(original) //nolint:gosec // A file of the project.
	if err != nil {
		t.Fatal(err)
	}
	if count := bytes.Count(text, []byte(m.before)); count != 1 {
		t.Fatalf("%s has the text %d times, want once: %s", m.file, count, m.before)
	}
	changed := filepath.Join(directory, filepath.Base(m.file))
	overlay := filepath.Join(directory, "overlay.json")
	list, _ := json.Marshal(map[string]map[string]string{"Replace": {original: changed}}) // Texts can be encoded.
	for file, text := range map[string][]byte{changed: bytes.Replace(text, []byte(m.before), []byte(m.after), 1), overlay: list} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

// test returns the module and the arguments of the Go command that runs the test.
func (m mutant) test(overlay, directory string) (module string, arguments []string) {
	arguments = []string{"test", "-count=1", "-overlay", overlay}
	switch m.finder {
	case "internal/controller":
		return "", append(arguments, "./internal/controller", "-v", "-ginkgo.fail-fast", "-ginkgo.focus", m.pattern)
	case "test/chaos":
		return "test", []string{"test", "-count=1", "./chaos", "-run", m.pattern, "-program", filepath.Join(directory, "manager")}
	case "test/explore":
		return "test", append(arguments, "./explore", "-run", m.pattern+"$")
	default:
		return "", append(arguments, "./"+m.finder, "-run", m.pattern)
	}
}

func command(module, name string, arguments ...string) ([]byte, error) {
	c := exec.CommandContext(context.Background(), name, arguments...)
	c.Dir = filepath.Join(root, module)
	bin, _ := filepath.Abs(filepath.Join(root, "bin")) // The working directory exists.
	c.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+bin)
	return c.CombinedOutput()
}

// guarantees is their number in docs/guarantees.md.
const guarantees = 9

func TestEveryGuaranteeHasAMutant(t *testing.T) {
	has := map[int]bool{}
	for _, m := range mutants {
		has[m.guarantee] = true
	}
	for guarantee := 1; guarantee <= guarantees; guarantee++ {
		if !has[guarantee] {
			t.Errorf("guarantee %d: no mutant violates it", guarantee)
		}
	}
}

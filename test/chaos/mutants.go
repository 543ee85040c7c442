package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mutant is an operator with a planted bug. The campaign that does not catch it is broken.
type mutant struct {
	name string
	// promise is the number of the promise in docs/reliability.md that it breaks.
	promise int
	// file has the text once; the bug is in what replaces it.
	file, text, bug string
	// part catches it in the short form.
	part string
}

const (
	controllerFile = "internal/controller/echo_controller.go"
	childrenFile   = "internal/controller/children.go"
	podsFile       = "internal/controller/pods.go"
	shapeFile      = "internal/children/deployment.go"
	statusFile     = "internal/status/status.go"
	mainFile       = "cmd/main.go"
)

var mutants = []mutant{
	{name: "writes in steady state", promise: 1, part: "crash points",
		file: childrenFile, text: "if !changed {\n		return live, nil", bug: "if false && !changed {\n		return live, nil"},
	{name: "writes the time into its status", promise: 1, part: "crash points",
		file: controllerFile, text: "	if err := r.writeStatus(ctx, echo, next)", bug: "	next.Selector += time.Now().Format(\",15-04-05\")\n	if err := r.writeStatus(ctx, echo, next)"},
	{name: "adopts by name", promise: 2, part: "other writers",
		file: childrenFile, text: "case !metav1.IsControlledBy(live, echo):", bug: "case live.GetName() != children.Name(echo):"},
	{name: "ignores a conflict", promise: 2, part: "other writers",
		file: childrenFile, text: "return nil, &notControlledError{kind: c.Name, object: live}", bug: "return live, nil"},
	{name: "lets drift be", promise: 3, part: "other writers",
		file: shapeFile, text: "	spec.Replicas = new(echo.Spec.Replicas)", bug: "	if deployment.UID == \"\" || deployment.Annotations[\"kkloud.io/echo-generation\"] != strconv.FormatInt(echo.Generation, 10) {\n		spec.Replicas = new(echo.Spec.Replicas)\n	}"},
	{name: "believes that Ready is for ever", promise: 3, part: "other writers",
		file: controllerFile, text: "	observed, err := r.reconcileChildren(ctx, echo)", bug: "	if meta.IsStatusConditionTrue(echo.Status.Conditions, echov1.ConditionReady) && echo.Status.ObservedGeneration == echo.Generation {\n		return ctrl.Result{}, nil\n	}\n	observed, err := r.reconcileChildren(ctx, echo)"},
	{name: "loses a child without its label", promise: 3, part: "other writers",
		file: childrenFile, text: "		if !apierrors.IsAlreadyExists(createErr) {", bug: "		if true {"},
	{name: "forgets a removed field", promise: 4, part: "operations",
		file: shapeFile, text: "	container.Resources = resources(echo)", bug: "	if len(echo.Spec.Resources.Limits)+len(echo.Spec.Resources.Requests) > 0 || container.Resources.Requests == nil {\n		container.Resources = resources(echo)\n	}"},
	{name: "keeps a child that is not wanted", promise: 4, part: "crash points",
		file: childrenFile, text: "		return nil, r.remove(ctx, echo, c, live)", bug: "		return nil, nil"},
	{name: "writes without a version", promise: 5, part: "stale reads",
		file: childrenFile, text: "	if err := r.Client.Update(ctx, desired)", bug: "	desired.SetResourceVersion(\"\")\n	if err := r.Client.Update(ctx, desired)"},
	{name: "believes an old Echo", promise: 5, part: "stale reads",
		file: childrenFile, text: "if children.Generation(live) <= echo.Generation {", bug: "if children.Generation(live) >= 0 {"},
	{name: "works for an Echo that is gone", promise: 5, part: "stale reads",
		file: childrenFile, text: "if previouslyReconciled(echo, c) {", bug: "if false && previouslyReconciled(echo, c) {"},
	{name: "reports Ready too early", promise: 6, part: "crash points",
		file: statusFile, text: "	return len(observed.Rejected) == 0 && observed.HasService &&", bug: "	return observed.Deployment != nil || len(observed.Rejected) == 0 && observed.HasService &&"},
	{name: "reports an earlier rollout", promise: 6, part: "crash points",
		file: statusFile, text: "	return deployment != nil && deployment.Status.ObservedGeneration >= deployment.Generation", bug: "	return deployment != nil"},
	{name: "does not look at pods", promise: 6, part: "failing pods",
		file: podsFile, text: "	return pods.Items, err", bug: "	return nil, err"},
	{name: "gives up after an error", promise: 7, part: "schedules",
		file: controllerFile, text: "return ctrl.Result{}, errors.New(status.Truncate(err.Error(), maxNote))", bug: "return ctrl.Result{}, nil"},
	{name: "gives up after a refusal", promise: 7, part: "rejections",
		file: controllerFile, text: "return ctrl.Result{RequeueAfter: terminalErrorRetry(next)}, nil", bug: "return ctrl.Result{}, nil"},
	{name: "retries a refusal without a pause", promise: 7, part: "rejections",
		file: controllerFile, text: "return ctrl.Result{RequeueAfter: terminalErrorRetry(next)}, nil", bug: "return ctrl.Result{RequeueAfter: time.Millisecond}, nil"},
	{name: "forgets a child after a crash", promise: 7, part: "crash points",
		file: controllerFile, text: "		object, err := r.reconcileChild(ctx, echo, c)", bug: "		if c.Name == \"PodDisruptionBudget\" && observed.Deployment != nil && observed.Deployment.Status.ObservedGeneration > 0 {\n			continue\n		}\n		object, err := r.reconcileChild(ctx, echo, c)"},
	{name: "keeps its lease when it stops", promise: 8, part: "two leaders",
		file: mainFile, text: "LeaderElectionReleaseOnCancel: true,", bug: "LeaderElectionReleaseOnCancel: false,"},
}

// control is the operator without a planted bug. What catches it would catch anything.
var control = mutant{name: "has no planted bug"}

// build makes the mutant's program. The tree stays as it is: the compiler sees another text
// in place of the file's.
func (m mutant) build(ctx context.Context, root, directory string) (string, error) {
	file, err := absolute(root, m.file)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file) //nolint:gosec // A file of the tree.
	if err != nil {
		return "", err
	}
	if n := bytes.Count(text, []byte(m.text)); n != 1 {
		return "", fmt.Errorf("mutant %q: %s has its text %d times, it must be there once: %s", m.name, m.file, n, m.text)
	}
	name := filepath.Join(directory, strings.ReplaceAll(m.name, " ", "-"))
	mutated := bytes.Replace(text, []byte(m.text), []byte(m.bug), 1)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: name + ".go"}})
	if err != nil {
		return "", err
	}
	//nolint:gosec // A directory of our own.
	if err := errors.Join(os.WriteFile(name+".go", mutated, 0o600), os.WriteFile(name+".json", overlay, 0o600)); err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", name+".json", "-o", name, "./cmd") //nolint:gosec // Our own program.
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build mutant %q: %w\n%s", m.name, err, output)
	}
	return name, nil
}

// mutantResult tells what caught a mutant.
type mutantResult struct {
	Mutant  string `json:"mutant"`
	Promise int    `json:"promise"`
	// Caught holds, for each part that was run, the scenario that caught it, or nothing.
	Caught map[string]string `json:"caught"`
}

// mutantConvergence is how long a mutant gets: longer than the operator ever takes, which tries
// again after 30 s at the most, and no longer, as many mutants never converge.
const mutantConvergence = 40 * time.Second

// sampled is how many mutants there are in the short form.
const sampled = 2

// sample chooses mutants that break different promises; which, the seed decides. Seed 0 takes
// them all.
func sample(seed uint64) (chosen []mutant) {
	if seed == 0 {
		return mutants
	}
	taken := map[int]bool{}
	for _, i := range rand.New(rand.NewPCG(seed, seed)).Perm(len(mutants)) { //nolint:gosec // To be repeated.
		if m := mutants[i]; !taken[m.promise] && len(chosen) < sampled {
			taken[m.promise] = true
			chosen = append(chosen, m)
		}
	}
	return chosen
}

// huntMutants runs mutants: in the short form a sample, each through the part that has to catch
// it, in the long form all of them through all parts, and before them the control.
func (b *bed) huntMutants(ctx context.Context, o options, r *report) error {
	b.convergence = mutantConvergence
	wrong, chosen := 0, append([]mutant{control}, mutants...)
	if o.short {
		chosen = sample(o.seed)
		fmt.Printf("%d of %d planted bugs, by seed %d\n", len(chosen), len(mutants), o.seed)
	}
	for _, m := range chosen {
		if !strings.Contains(m.name, o.scenario) {
			continue
		}
		program := b.program
		if m != control {
			var err error
			if program, err = m.build(ctx, o.root, b.directory); err != nil {
				return err
			}
		}
		all := o
		all.scenario, all.short, all.seed = "", true, 1
		results, err := b.play(ctx, m.hunters(o), all, program)
		if err != nil {
			return err
		}
		result := mutantResult{Mutant: m.name, Promise: m.promise, Caught: map[string]string{}}
		for _, played := range results {
			result.Caught[played.Part] = strings.Join(played.Failures, "; ")
		}
		r.Mutants = append(r.Mutants, result)
		if !m.judge(result.Caught) {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d operators were judged wrongly", wrong)
	}
	return nil
}

// judge tells whether the right parts caught the mutant: the one that has to, if it was played;
// for the control, none.
func (m mutant) judge(caught map[string]string) bool {
	if scenario, played := caught[m.part]; played && scenario == "" {
		fmt.Printf("MISSED %s: %s did not catch it\n", m.name, m.part)
		return false
	} else if played {
		fmt.Printf("caught %s: %s, %s\n", m.name, m.part, scenario)
		return true
	}
	right := true
	for part, scenario := range caught {
		if m == control && scenario != "" {
			fmt.Printf("WRONG: %s caught an operator that %s: %s\n", part, m.name, scenario)
			right = false
		}
	}
	return right
}

// hunters are the parts that look for the mutant: in the short form the one that has to catch
// it. The last parts come first, as they mostly wait.
func (m mutant) hunters(o options) (hunters []part) {
	for _, p := range slices.Backward(parts) {
		if !p.alone && (!o.short || p.name == m.part) && (o.part == "" || p.name == o.part) {
			hunters = append(hunters, p)
		}
	}
	return hunters
}

// printMutants prints the table of which part catches which.
func printMutants(w io.Writer, results []mutantResult) {
	if len(results) == 0 {
		return
	}
	columns := []string{"operator that", "promise"}
	for _, p := range parts {
		columns = append(columns, p.name)
	}
	printRow := func(cells []string) { _, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	_, _ = fmt.Fprintln(w)
	printRow(columns)
	printRow(slices.Repeat([]string{"---"}, len(columns)))
	for _, r := range results {
		cells := []string{r.Mutant, fmt.Sprint(r.Promise)}
		for _, p := range parts {
			caught, played := r.Caught[p.name]
			switch {
			case !played:
				cells = append(cells, "")
			case caught == "":
				cells = append(cells, "–")
			default:
				cells = append(cells, "caught")
			}
		}
		printRow(cells)
	}
}

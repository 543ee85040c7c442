// The scorecard program contains the operator's own tests for `operator-sdk scorecard`. They test
// an installed operator with an Echo. `scorecard <test>` runs one test in the namespace of its
// pod and prints the result.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// testTimeout limits a test. It allows for an image pull. It is shorter than the documented
// --wait-time, so that the test itself can report what it was waiting for.
const testTimeout = 90 * time.Second

var tests = map[string]func(context.Context, *fixture) error{
	"echo-responds": responds,
	"echo-rolls":    rolls,
	"echo-verifies": verifies,
}

func main() {
	// The scorecard parses both output streams of the pod, so the program must not log.
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	// After --wait-time, the scorecard deletes the pod. The test still has to delete its Echo.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	status := v1alpha3.TestStatus{Results: []v1alpha3.TestResult{run(ctx, strings.Join(os.Args[1:], " "))}}
	if err := json.NewEncoder(os.Stdout).Encode(status); err != nil {
		os.Exit(1)
	}
}

// run runs a test. The result is "error" if the test could not start.
func run(ctx context.Context, name string) v1alpha3.TestResult {
	result := v1alpha3.TestResult{Name: name, State: v1alpha3.PassState, CreationTimestamp: metav1.Now()}
	t, err := newFixture(name, os.Getenv("SCORECARD_NAMESPACE"))
	if err != nil {
		result.State, result.Errors = v1alpha3.ErrorState, []string{err.Error()}
		return result
	}
	limited, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	if err := errors.Join(tests[name](limited, t), t.cleanUp(ctx)); err != nil {
		result.State = v1alpha3.FailState
		result.Errors = strings.Split(err.Error(), "\n") // One line for each joined error.
	}
	return result
}

func newFixture(name, namespace string) (*fixture, error) {
	if tests[name] == nil {
		return nil, fmt.Errorf("test %q does not exist: use one of %s", name, strings.Join(slices.Sorted(maps.Keys(tests)), ", "))
	}
	if namespace == "" {
		return nil, errors.New("SCORECARD_NAMESPACE is not set: `operator-sdk scorecard` sets it to the namespace of the test's pod")
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("load the client configuration: %w", err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(echov1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: name + "-"}}
	return &fixture{Client: c, echo: echo}, nil
}

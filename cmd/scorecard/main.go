// The operator's own tests for `operator-sdk scorecard`: what an installed operator makes
// of an Echo. `scorecard <test>` runs one, in the namespace of its pod, and prints its result.
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// testTime is how long a test may take. It allows for the pull of an image, and it is
// shorter than the --wait-time that the documentation names, so that the test itself says
// what it waited for in vain.
const testTime = 90 * time.Second

var tests = map[string]func(context.Context, *trial) error{
	"echo-answers": answers,
	"echo-scales":  scales,
	"echo-rolls":   rolls,
	"echo-refuses": refuses,
	"echo-cleanup": cleanup,
}

func main() {
	// The scorecard parses all that the pod prints, on either stream: nothing may be logged.
	ctrl.SetLogger(zap.New(zap.WriteTo(io.Discard)))
	// When its --wait-time is over, the scorecard deletes the pod: there is still an Echo to remove.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	status := v1alpha3.TestStatus{Results: []v1alpha3.TestResult{run(ctx, strings.Join(os.Args[1:], " "))}}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(status); err != nil {
		os.Exit(1)
	}
}

// run runs a test. The result is "error" where the test could not begin.
func run(ctx context.Context, name string) v1alpha3.TestResult {
	result := v1alpha3.TestResult{Name: name, State: v1alpha3.PassState, CreationTimestamp: metav1.Now()}
	test, found := tests[name]
	if !found {
		result.State = v1alpha3.ErrorState
		result.Errors = []string{fmt.Sprintf("there is no test %q: name one of %s", name,
			strings.Join(slices.Sorted(maps.Keys(tests)), ", "))}
		return result
	}
	t, err := newTrial(name, os.Getenv("SCORECARD_NAMESPACE"))
	if err != nil {
		result.State = v1alpha3.ErrorState
		result.Errors = []string{err.Error()}
		return result
	}

	limited, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	if err := errors.Join(test(limited, t), t.remove(ctx)); err != nil {
		result.State = v1alpha3.FailState
		result.Errors = strings.Split(err.Error(), "\n") // One line for each of the joined errors.
		result.Suggestions = suggestions(err, t.echo)
	}
	return result
}

func newTrial(name, namespace string) (*trial, error) {
	if namespace == "" {
		return nil, errors.New("SCORECARD_NAMESPACE is not set: `operator-sdk scorecard` sets it to the namespace of the test's pod")
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := echov1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return &trial{Client: c, echo: &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: name + "-"},
	}}, nil
}

// suggestions says what to look at after a failure; the Echo is gone by then.
func suggestions(err error, echo *echov1.Echo) []string {
	switch {
	case meta.IsNoMatchError(err):
		return []string{"Install the operator: the cluster does not know the kind Echo."}
	case apierrors.IsForbidden(err):
		return []string{"Where the service account lacks a permission, bind the Role in config/scorecard/role.yaml to it, and name it with --service-account."}
	case echo.Name == "":
		return []string{"Compare the CRD in the cluster, kubectl get crd echoes.kkloud.io -o yaml, with that in the bundle's manifests."}
	}
	return []string{
		fmt.Sprintf("See what happened to the Echo: kubectl -n %s events | grep %s", echo.Namespace, echo.Name),
		"See that the operator runs, and what its log says: kubectl get pods --all-namespaces -l app.kubernetes.io/name=echo-operator",
		fmt.Sprintf("See that its OperatorGroup includes the namespace %s: kubectl get operatorgroups --all-namespaces -o jsonpath='{.items[*].status.namespaces}'", echo.Namespace),
	}
}

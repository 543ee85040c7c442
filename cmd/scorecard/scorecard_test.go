package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	"sigs.k8s.io/yaml"
)

func TestUnknownTestIsAnErrorThatListsTheTests(t *testing.T) {
	for _, name := range []string{"", "echo-unknown"} {
		result := run(t.Context(), name)
		want := fmt.Sprintf("test %q does not exist: use one of echo-responds, echo-rolls, echo-verifies", name)
		if result.State != v1alpha3.ErrorState || !slices.Equal(result.Errors, []string{want}) {
			t.Errorf("result = %s %q, want error %q", result.State, result.Errors, want)
		}
	}
}

func TestMissingNamespaceIsAnError(t *testing.T) {
	t.Setenv("SCORECARD_NAMESPACE", "")
	result := run(t.Context(), "echo-responds")
	if result.State != v1alpha3.ErrorState || len(result.Errors) != 1 || !strings.Contains(result.Errors[0], "SCORECARD_NAMESPACE") {
		t.Errorf("result = %s %q, want an error that names SCORECARD_NAMESPACE", result.State, result.Errors)
	}
}

func TestEveryTestIsInTheConfiguration(t *testing.T) {
	var config v1alpha3.Configuration
	read(t, "../../config/scorecard/config.yaml", &config)
	var configured []string
	for _, test := range config.Stages[0].Tests {
		if test.Entrypoint[0] == "scorecard" {
			configured = append(configured, test.Entrypoint[1])
		}
	}
	slices.Sort(configured)
	if implemented := slices.Sorted(maps.Keys(tests)); !slices.Equal(configured, implemented) {
		t.Errorf("config/scorecard runs %q, cmd/scorecard implements %q", configured, implemented)
	}
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

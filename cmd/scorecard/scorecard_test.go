package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

func TestUnknownTestIsAnErrorThatListsTheTests(t *testing.T) {
	for _, name := range []string{"", "echo-unknown"} {
		result := run(t.Context(), name)
		want := fmt.Sprintf("test %q does not exist: use one of echo-cleanup, echo-rejects, echo-responds, echo-rolls, echo-scales, echo-verifies", name)
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

func TestRolePermitsListingEveryExpectedKind(t *testing.T) {
	var role rbacv1.Role
	read(t, "../../config/scorecard/role.yaml", &role)
	for _, kind := range expectedKinds {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if !slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, resource.Group) && slices.Contains(rule.Resources, resource.Resource) && slices.Contains(rule.Verbs, "list")
		}) {
			t.Errorf("config/scorecard/role.yaml does not permit listing %s", resource.GroupResource())
		}
	}
}

func TestMissingReportsWhyAnEchoIsNotRolledOut(t *testing.T) {
	served := echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Generation: 2},
		Spec:       echov1.EchoSpec{Replicas: 2},
		Status: echov1.EchoStatus{ObservedGeneration: 2, Ready: "2/2", Conditions: []metav1.Condition{
			{Type: echov1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", Message: "2 of 2 pods serve the newest spec"},
		}},
	}
	for want, change := range map[string]func(*echov1.Echo){
		"": func(*echov1.Echo) {},
		"status.observedGeneration = 1, want metadata.generation 2": func(echo *echov1.Echo) { echo.Status.ObservedGeneration = 1 },
		"the condition Ready is not True":                           func(echo *echov1.Echo) { echo.Status.Conditions[0].Status = metav1.ConditionFalse },
		`status.ready = "1/2", want "2/2"`:                          func(echo *echov1.Echo) { echo.Status.Ready = "1/2" },
	} {
		echo := served.DeepCopy()
		change(echo)
		got := ""
		if err := missing(echo); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("missing = %q, want %q", got, want)
		}
	}
	if got, want := lastReady(&served), "the last known condition Ready of the Echo is True, Ready: 2 of 2 pods serve the newest spec"; got != want {
		t.Errorf("lastReady = %q, want %q", got, want)
	}
	if got := lastReady(&echov1.Echo{}); !strings.Contains(got, "no operator") {
		t.Errorf("lastReady = %q, want it to contain \"no operator\"", got)
	}
}

func TestSendRequestsCountsWrongResponses(t *testing.T) {
	for name, test := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"allowed body":   {http.StatusOK, "new\n", ""},
		"another body":   {http.StatusOK, "other\n", `first "other\n"`},
		"another status": {http.StatusBadGateway, "new\n", "returned status 502 Bad Gateway"},
	} {
		t.Run(name, func(t *testing.T) {
			requests := make(chan struct{}, 100)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(test.body))
				requests <- struct{}{}
			}))
			defer server.Close()
			stop := sendRequests(t.Context(), server.URL, "old\n", "new\n")
			for range 3 {
				<-requests
			}
			err := stop()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want it to contain %q", err, test.want)
			}
		})
	}
}

func TestSuggestionsDependOnTheError(t *testing.T) {
	echoes := schema.GroupResource{Group: "kkloud.io", Resource: "echoes"}
	created := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "echo-responds-x"}}
	for want, got := range map[string][]string{
		"--service-account":  suggestions(fmt.Errorf("create: %w", apierrors.NewForbidden(echoes, "x", errors.New("no"))), &echov1.Echo{}),
		"Compare the CRD":    suggestions(errors.New("accepted"), &echov1.Echo{}),
		"-n here events":     suggestions(errors.New("not Ready"), created),
		"the namespace here": suggestions(errors.New("not Ready"), created),
		"kind Echo":          suggestions(&meta.NoKindMatchError{}, &echov1.Echo{}),
	} {
		if !strings.Contains(strings.Join(got, "\n"), want) {
			t.Errorf("suggestions = %q, want them to contain %q", got, want)
		}
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

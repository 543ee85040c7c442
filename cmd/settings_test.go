package main

import (
	"slices"
	"strings"
	"testing"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if value, found := strings.CutPrefix(pair, name+"="); found {
				return value
			}
		}
		return ""
	}
}

const (
	image         = "RELATED_IMAGE_HTTP_ECHO=docker.io/hashicorp/http-echo:1.0.0"
	verifierImage = "RELATED_IMAGE_VERIFIER=ghcr.io/kkloud-io/echo-operator-verifier:v1"
)

func TestParseSettingsReadsFlagsAndEnvironment(t *testing.T) {
	s, err := parseSettings([]string{"--leader-elect", "--max-concurrent-reconciles=3", "--metrics-bind-address=0", "--allow-every-node-verification"}, env(image, verifierImage))
	if err != nil {
		t.Fatal(err)
	}
	if !s.leaderElect || s.maxConcurrentReconciles != 3 || s.metricsAddress != "0" || s.healthAddress != ":8081" ||
		s.pprofAddress != "0" || s.serverImage != "docker.io/hashicorp/http-echo:1.0.0" ||
		s.verifierImage != "ghcr.io/kkloud-io/echo-operator-verifier:v1" || !s.allowEveryNode {
		t.Errorf("settings = %+v, want the values of the flags and of the images' variables", s)
	}
	if s, err = parseSettings(nil, env(image, verifierImage)); err != nil || s.allowEveryNode {
		t.Errorf("without flags and variables: verification from every node is allowed: %t, %v, want false", s.allowEveryNode, err)
	}
}

func TestVerificationFromEveryNodeIsAllowedByAVariable(t *testing.T) {
	for value, want := range map[string]bool{"": false, "false": false, "true": true} {
		s, err := parseSettings(nil, env(image, verifierImage, "ALLOW_EVERY_NODE_VERIFICATION="+value))
		if err != nil || s.allowEveryNode != want {
			t.Errorf("ALLOW_EVERY_NODE_VERIFICATION=%q: allowed = %t, %v, want %t", value, s.allowEveryNode, err, want)
		}
	}
}

func TestWatchNamespaceIsAListOfNamespaces(t *testing.T) {
	for list, want := range map[string][]string{
		"":          nil,
		"one":       {"one"},
		"one,two":   {"one", "two"},
		"one, two ": {"one", "two"},
	} {
		s, err := parseSettings(nil, env(image, verifierImage, "WATCH_NAMESPACE="+list))
		if err != nil || !slices.Equal(s.namespaces, want) {
			t.Errorf("WATCH_NAMESPACE=%q: namespaces = %q, %v, want %q", list, s.namespaces, err, want)
		}
	}
}

func TestOperatorConditionIsReadFromTheEnvironmentUnderOLM(t *testing.T) {
	s, err := parseSettings(nil, env(image, verifierImage, "OPERATOR_CONDITION_NAME=echo-operator.v1.2.3", "POD_NAMESPACE=operators"))
	if err != nil || s.operatorCondition == nil || s.operatorCondition.String() != "operators/echo-operator.v1.2.3" {
		t.Errorf("OperatorCondition = %v, %v, want operators/echo-operator.v1.2.3", s.operatorCondition, err)
	}
	if s, err = parseSettings(nil, env(image, verifierImage, "POD_NAMESPACE=operators")); err != nil || s.operatorCondition != nil {
		t.Errorf("without OLM: OperatorCondition = %v, %v, want none", s.operatorCondition, err)
	}
}

func TestInvalidSettingIsReportedInOneLineWithTheAllowedValues(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		env  []string
		want []string
	}{
		"empty image":      {nil, nil, []string{`RELATED_IMAGE_HTTP_ECHO is ""`, "ghcr.io/"}},
		"blank image":      {nil, []string{"RELATED_IMAGE_HTTP_ECHO= "}, []string{`RELATED_IMAGE_HTTP_ECHO is " "`}},
		"no verifier":      {nil, []string{image}, []string{`RELATED_IMAGE_VERIFIER is ""`, "ghcr.io/"}},
		"not a boolean":    {nil, []string{image, verifierImage, "ALLOW_EVERY_NODE_VERIFICATION=1"}, []string{"ALLOW_EVERY_NODE_VERIFICATION", "true, false"}},
		"bad namespace":    {nil, []string{image, verifierImage, "WATCH_NAMESPACE=a,B"}, []string{"WATCH_NAMESPACE", `"B"`, "commas"}},
		"empty namespace":  {nil, []string{image, verifierImage, "WATCH_NAMESPACE=a,,b"}, []string{"WATCH_NAMESPACE", `""`}},
		"no own namespace": {nil, []string{image, verifierImage, "OPERATOR_CONDITION_NAME=c"}, []string{"POD_NAMESPACE", "OPERATOR_CONDITION_NAME"}},
		"unknown flag":     {[]string{"--colour"}, []string{image, verifierImage}, []string{"-colour"}},
		"argument":         {[]string{"start"}, []string{image, verifierImage}, []string{`"start"`, "only flags"}},
		"0 workers":        {[]string{"--max-concurrent-reconciles=0"}, []string{image, verifierImage}, []string{"--max-concurrent-reconciles", "at least 1"}},
		"no port":          {[]string{"--metrics-bind-address=localhost"}, []string{image, verifierImage}, []string{"--metrics-bind-address", `"localhost"`, ":8080"}},
		"port too high":    {[]string{"--pprof-bind-address=:65536"}, []string{image, verifierImage}, []string{"--pprof-bind-address", "65536"}},
		"workers are abc":  {[]string{"--max-concurrent-reconciles=abc"}, []string{image, verifierImage}, []string{"max-concurrent-reconciles", "abc"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseSettings(test.args, env(test.env...))
			if err == nil {
				t.Fatal("error = nil, want an error")
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error = %q, want one line", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error = %q, want it to contain %q", err, part)
				}
			}
		})
	}
}

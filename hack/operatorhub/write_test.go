package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kkloud-io/echo-operator/hack/catalog/releases"
)

func TestPullRequestOffersTheVersionInTheChannelsOfTheHub(t *testing.T) {
	t.Chdir("../..")
	output := t.TempDir()
	published := []releases.Release{
		{Version: "0.9.0-rc.1", Channels: []string{"candidate-v1"}},
		{Version: "1.0.0-0", Channels: []string{"candidate-v1", "stable-v1"}},
	}
	for _, hub := range hubs {
		if err := hub.write(filepath.Join(output, hub.name), "bundle", published); err != nil {
			t.Fatalf("%s: %v", hub.name, err)
		}
	}
	text, err := os.ReadFile("bundle/manifests/echo-operator.clusterserviceversion.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var csv struct{ Spec struct{ Version string } }
	if err := yaml.Unmarshal(text, &csv); err != nil {
		t.Fatal(err)
	}
	version := csv.Spec.Version
	for file, lines := range map[string][]string{
		"community-operators/ci.yaml": {"updateGraph: semver-mode"},
		"community-operators/" + version + "/metadata/annotations.yaml": {
			"bundle.channels.v1: stable-v1", "bundle.channel.default.v1: stable-v1", "com.redhat.openshift.versions: v4."},
		"community-operators-prod/" + version + "/metadata/annotations.yaml": {
			"bundle.channels.v1: candidate-v1,stable-v1", "com.redhat.openshift.versions: v4."},
		"community-operators-prod/" + version + "/release-config.yaml": {"defaultChannel: stable-v1",
			"- channels:\n  - candidate-v1\n  replaces: echo-operator.v1.0.0-0\n  template_name: basic.yaml",
			"- channels:\n  - stable-v1\n  replaces: echo-operator.v1.0.0-0\n  skipRange: '>=1.0.0-0 <" + version + "'\n  template_name: basic.yaml"},
		"community-operators-prod/catalog-templates/basic.yaml": {"name: echo-operator.v1.0.0-0\n  name: stable-v1",
			"image: quay.io/community-operator-pipeline-prod/echo-operator:v1.0.0-0"},
	} {
		text, err := os.ReadFile(filepath.Join(output, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s:\n%s\nwant the lines:\n%s", file, text, line)
			}
		}
	}
}

func TestNoPullRequestOffersACandidate(t *testing.T) {
	err := writePullRequests("1.0.0-rc.1", t.TempDir(), []releases.Release{{Version: "1.0.0-rc.1", Channels: []string{"candidate-v1"}}})
	if want := "version 1.0.0-rc.1 is in [candidate-v1]: only versions in a channel stable-v"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("writePullRequests: %v, want an error that contains %q", err, want)
	}
}

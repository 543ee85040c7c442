// Package versions tests that every file names the same versions: those of tools/*.mod for Kubernetes, OLM
// and other programs, and that of the Makefile for this operator.
package versions

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

// A mention finds versions of a program in the text of files.
type mention struct {
	program string
	// file and module are the place that pins the version.
	file, module string
	// patterns match text that names the version, which is the one group.
	patterns []string
	// only restricts the patterns to one file.
	only string
}

const number = `(\d+\.\d+\.\d+)`

var mentions = []mention{
	{program: "Go", file: "go.mod", module: "toolchain", patterns: []string{`golang:` + number}},
	{program: "Kubernetes", file: "tools/kubernetes.mod", module: "k8s.io/kubernetes", patterns: []string{
		`(?i:kubernetes|kube-apiserver|kubectl|kubelet) v?` + number, `\| kube-apiserver,[^|]*\| ` + number, `kindest/node:v` + number}},
	{program: "the oldest Kubernetes", file: "tools/kubernetes-oldest.mod", module: "k8s.io/kubernetes", patterns: []string{
		`API server and kube-controller-manager of ` + number}},
	{program: "etcd", file: "tools/etcd.mod", module: "go.etcd.io/etcd/server/v3", patterns: []string{`etcd v?` + number, `\| etcd,[^|]*\| ` + number}},
	{program: "containerd", file: "tools/containerd.mod", module: "github.com/containerd/containerd/v2", patterns: []string{
		`containerd v?` + number, `\| etcd, containerd,[^|]*\| [0-9.]+, ` + number}},
	{program: "CoreDNS", file: "hack/go.mod", module: "github.com/coredns/coredns", patterns: []string{`coredns:v` + number}},
	{program: "OLM", file: "tools/olm.mod", module: "github.com/operator-framework/operator-lifecycle-manager", patterns: []string{
		`operator-framework/olm:v` + number, `(?:OLM|Operator Lifecycle Manager) v?(0\.\d+\.\d+)`, `olm\.version: ` + number, `\| OLM: [^|]*\| ` + number}},
	{program: "opm", file: "tools/olm.mod", module: "github.com/operator-framework/operator-registry", patterns: []string{
		`opm:v` + number, `operator-registry v` + number}},
	{program: "OLM v1", file: "tools/olm-v1.mod", module: "github.com/operator-framework/operator-controller", patterns: []string{
		`operator-framework/(?:catalogd|operator-controller):v` + number, `OLM v1 v` + number, `operator-controller and catalogd v` + number,
		`\| OLM v1 [^|]*\| ` + number}},
	{program: "OLM v1", file: "tools/olm-v1.mod", module: "github.com/operator-framework/operator-controller",
		patterns: []string{`\bv` + number}, only: "docs/olm-v1.md"},
	{program: "Traefik", file: "tools/traefik.mod", module: "github.com/traefik/traefik/v3", patterns: []string{`(?i:traefik)(?: |:)v?` + number}},
	{program: "Gateway API", file: "go.mod", module: "sigs.k8s.io/gateway-api", patterns: []string{`Gateway API v?` + number}},
	{program: "http-echo", file: "tools/http-echo.mod", module: "github.com/hashicorp/http-echo", patterns: []string{
		`hashicorp/http-echo:v?` + number, `org\.opencontainers\.image\.version=` + number}},
	{program: "go-httpbin", file: "tools/go-httpbin.mod", module: "github.com/mccutchen/go-httpbin/v2", patterns: []string{`go-httpbin:v?` + number}},
	{program: "operator-sdk", file: "tools/operator-sdk.mod", module: "github.com/operator-framework/operator-sdk", patterns: []string{
		`operator-sdk[- ]v` + number, `scorecard-untar:v` + number}},
	{program: "controller-gen", file: "tools/controller-gen.mod", module: "sigs.k8s.io/controller-tools", patterns: []string{
		`controller-gen\.kubebuilder\.io/version: v` + number}},
	{program: "kube-score", file: "tools/kube-score.mod", module: "github.com/zegl/kube-score", patterns: []string{`kube-score\]\([^)]*\) ` + number}},
	{program: "kubesec", file: "tools/kubesec.mod", module: "github.com/controlplaneio/kubesec/v2", patterns: []string{`kubesec\]\([^)]*\) ` + number}},
}

// records are files that name the version of a past release or of a past measurement.
var records = []string{
	"CHANGELOG.md", "catalog/echo-operator/*", "test/catalog/*", "docs/adr/*", "docs/performance.md", "docs/reliability.md",
	"test/performance/recorded*.json",
}

// exceptions are other versions that files name on purpose.
var exceptions = []string{
	"v1.11.0",                   // a newer release of OLM v1 with other rules
	"hashicorp/http-echo:0.2.3", // another image for spec.image
}

func TestVersionsOfProgramsMatchModuleFiles(t *testing.T) {
	list, err := exec.Command("git", "-C", repo.Root, "ls-files").Output()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for file := range strings.FieldsSeq(string(list)) {
		record := slices.ContainsFunc(records, func(pattern string) bool { return repo.Matches(t, pattern, file) })
		if record || strings.HasPrefix(file, "tools/") || filepath.Ext(file) == ".sum" {
			continue
		}
		texts[file] = string(repo.Read(t, repo.Root+"/"+file))
	}
	found := 0
	for _, m := range mentions {
		want := repo.PinnedVersion(t, m.file, m.module)
		for _, pattern := range m.patterns {
			expression := regexp.MustCompile(pattern)
			for file, text := range texts {
				if m.only != "" && m.only != file {
					continue
				}
				for _, match := range expression.FindAllStringSubmatch(text, -1) {
					found++
					if match[1] != want && !slices.Contains(exceptions, match[0]) {
						t.Errorf("%s: %q: %s has version %s in %s", file, match[0], m.program, want, m.file)
					}
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("found %d versions in %d files, want at least 20", found, len(texts))
	}
}

// make integration-oldest runs the version that the bundle declares as the oldest.
func TestOldestKubernetesIsTheMinimumOfTheBundle(t *testing.T) {
	tested, _, _ := strings.Cut(strings.TrimPrefix(repo.PinnedVersion(t, "tools/kubernetes-oldest.mod", "k8s.io/kubernetes"), "1."), ".")
	csv := string(repo.Read(t, repo.Root+"/config/manifests/bases/echo-operator.clusterserviceversion.yaml"))
	if want := "minKubeVersion: 1." + tested + ".0\n"; !strings.Contains(csv, want) {
		t.Errorf("the ClusterServiceVersion has no %q, but tools/kubernetes-oldest.mod has version 1.%s", want, tested)
	}
}

// tools/traefik.mod replaces Lego by a copy, whose source and sum are in tools/lego.mod.
func TestCopyOfLegoHasTheVersionThatTraefikRequires(t *testing.T) {
	const lego = "github.com/go-acme/lego/v5"
	copied, required := repo.PinnedVersion(t, "tools/lego.mod", lego), repo.PinnedVersion(t, "tools/traefik.mod", lego)
	if copied != required {
		t.Errorf("tools/lego.mod requires %s %s, want %s as in tools/traefik.mod", lego, copied, required)
	}
}

func TestVersionOfOperatorMatchesMakefile(t *testing.T) {
	version := repo.MakeVariable(t, "VERSION")
	// Unreleased images have the version as tag, released images a digest.
	for _, mention := range []struct{ file, image string }{
		{"config/manager/manager.yaml", "echo-operator"},
		{"config/manager/manager.yaml", "echo-operator-verifier"},
		{"config/manifests/bases/echo-operator.clusterserviceversion.yaml", "echo-operator"},
		{"config/scorecard/config.yaml", "echo-operator-scorecard"},
	} {
		image := regexp.MustCompile(`(?m)/` + mention.image + `(:v` + regexp.QuoteMeta(version) + `|@sha256:[0-9a-f]{64})$`)
		if !image.Match(repo.Read(t, repo.Root+"/"+mention.file)) {
			t.Errorf("%s: found no image %s with tag v%s, as in the Makefile, or a digest", mention.file, mention.image, version)
		}
	}
	major, _, _ := strings.Cut(version, ".")
	release, _, _ := strings.Cut(version, "-rc.")
	for file, text := range map[string]string{
		"config/olm/catalogsource.yaml":                                   "-catalog:v" + major + "\n",
		"config/olm-v1/clustercatalog.yaml":                               "-catalog:v" + major + "\n",
		"config/manifests/bases/echo-operator.clusterserviceversion.yaml": " <" + version + "'",
		"CHANGELOG.md":          "\n## " + release + " (",
		"catalog/releases.yaml": "\n- version: " + version + "\n",
	} {
		if !strings.Contains(string(repo.Read(t, repo.Root+"/"+file)), text) {
			t.Errorf("%s does not contain %q: the version in the Makefile is %s", file, text, version)
		}
	}
}

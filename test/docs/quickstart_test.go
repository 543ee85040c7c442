//go:build e2e

package docs

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

// registryAddress is the address of the registry in the README.
const registryAddress = "localhost:5001"

// transcript has the first commands of a user, who only knows the introduction of Echoes.
const transcript = "test/docs/testdata/transcript.md"

// TestQuickStart runs the quick start of the README and then the transcript exactly as printed, on the cluster of KUBECONFIG,
// which must not have the operator. On the local cluster, registryAddress is the cluster's registry.
func TestQuickStart(t *testing.T) {
	if err := testcluster.Check(root); err != nil {
		t.Fatal(err)
	}
	if testcluster.IsLocal(root) {
		useLocalRegistry(t)
	}
	quickStartBlocks := slices.DeleteFunc(blocks(readFile(t, quickStart)), func(b block) bool { return b.example })
	transcriptBlocks := blocks(readFile(t, transcript))
	t.Chdir(root)
	for _, variable := range []string{"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "GOFLAGS"} { // Those of the make that runs this test.
		t.Setenv(variable, "")
	}
	start := time.Now()
	err := runBlocks(t.Context(), quickStartBlocks, 0, func(b block, output string) {
		t.Logf("line %d, after %s:\n%s\n\n%s", b.line, time.Since(start).Round(time.Second), b.commands, output)
		if b.hasOutput && !strings.HasSuffix(trimmed(output), trimmed(b.output)) {
			t.Errorf("%s:%d: output =\n%s\nwant as its last line:\n%s", quickStart, b.line, output, b.output)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	runDocument(t.Context(), t, transcript, transcriptBlocks)
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

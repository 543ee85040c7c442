package main

import (
	"strings"
	"testing"
)

// request sends one request to the server of the kubeconfig in $file.
const request = `address=$(sed -n 's|.*server: "http://\(.*\)".*|\1|p' "$file")
exec 3<>"/dev/tcp/${address%:*}/${address#*:}"
printf 'GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nUser-Agent: planted\r\nConnection: close\r\n\r\n' >&3
grep -q 403 <&3`

func TestRunReportsFailuresAndConnections(t *testing.T) {
	for _, test := range []struct {
		name, script string
		want         []string
	}{
		{"a command without requests passes", "true", nil},
		{"a failing command fails", "exit 3", []string{"exit status 3"}},
		{"a request by KUBECONFIG fails", "file=$KUBECONFIG; " + request, []string{"kubeconfig = 1, want 0", "GET /api/v1/pods (planted)"}},
		{"a request by the home directory fails", "file=$HOME/.kube/config; " + request, []string{"kubeconfig = 1, want 0"}},
		{"a failing command with a request reports both", "file=$KUBECONFIG; " + request + "; exit 3", []string{"exit status 3", "GET /api/v1/pods"}},
		{"a connection without a request fails", "file=$KUBECONFIG; " + strings.Split(request, "\nprintf")[0], []string{"kubeconfig = 1, want 0"}},
		{"the command may use an existing cluster", `[ "$USE_EXISTING_CLUSTER" = true ]`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := run(t.Context(), []string{"bash", "-euc", test.script})
			if (err != nil) != (test.want != nil) {
				t.Fatalf("run(%q) = %v, want an error: %t", test.script, err, test.want != nil)
			}
			for _, text := range test.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("run(%q) = %v, want an error with %q", test.script, err, text)
				}
			}
		})
	}
}

func TestRunWithoutCommandReturnsUsage(t *testing.T) {
	if err := run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("run() = %v, want the usage", err)
	}
}

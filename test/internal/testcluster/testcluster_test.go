package testcluster_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kkloud-io/echo-operator/test/internal/testcluster"
)

func TestCheckAllowsTheLocalAndAnExplicitCluster(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(root, "bin", "cluster", "kubeconfig")
	for _, test := range []struct {
		name, kubeconfig, existing string
		allowed, isLocal           bool
	}{
		{"the local cluster is allowed", local, "", true, true},
		{"another cluster is denied", "/home/user/.kube/config", "", false, false},
		{"the default kubeconfig is denied", "", "", false, false},
		{"a list with the local cluster is denied", local + ":/home/user/.kube/config", "", false, false},
		{"any value but true is denied", "/home/user/.kube/config", "false", false, false},
		{"an explicit cluster is allowed", "/home/user/.kube/config", "true", true, false},
		{"an explicit default kubeconfig is allowed", "", "true", true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", test.kubeconfig)
			t.Setenv("USE_EXISTING_CLUSTER", test.existing)
			err := testcluster.Check("../../..")
			if (err == nil) != test.allowed {
				t.Errorf("Check() = %v, want allowed: %t", err, test.allowed)
			}
			if err != nil && (strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "USE_EXISTING_CLUSTER=true")) {
				t.Errorf("Check() = %q, want one line that names USE_EXISTING_CLUSTER=true", err)
			}
			if got := testcluster.IsLocal("../../.."); got != test.isLocal {
				t.Errorf("IsLocal() = %t, want %t", got, test.isLocal)
			}
		})
	}
}

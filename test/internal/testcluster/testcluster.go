// Package testcluster keeps tests away from a cluster that they were not given.
package testcluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// Check returns an error unless tests may use the cluster of KUBECONFIG: it is the local cluster,
// or USE_EXISTING_CLUSTER is true. Every suite that needs a cluster calls it first. The argument
// is the path to the top of the repository.
func Check(root string) error {
	if IsLocal(root) || os.Getenv("USE_EXISTING_CLUSTER") == "true" {
		return nil
	}
	return fmt.Errorf("KUBECONFIG=%s is not the local cluster (%s): set USE_EXISTING_CLUSTER=true to test on it, or run make",
		os.Getenv("KUBECONFIG"), local(root))
}

// IsLocal reports whether KUBECONFIG names the local cluster.
func IsLocal(root string) bool {
	return os.Getenv("KUBECONFIG") == local(root)
}

func local(root string) string {
	path, err := filepath.Abs(filepath.Join(root, "bin", "cluster", "kubeconfig"))
	if err != nil {
		panic(err) // The working directory was deleted.
	}
	return path
}

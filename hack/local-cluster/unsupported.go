//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "local-cluster requires Linux namespaces: run it on Linux, or set KUBECONFIG to use another cluster")
	os.Exit(1)
}

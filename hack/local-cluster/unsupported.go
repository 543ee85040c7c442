//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "local-cluster: it is made of Linux namespaces; run it on Linux, or point KUBECONFIG at another cluster")
	os.Exit(1)
}

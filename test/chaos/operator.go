package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// startOperator runs the program behind a proxy. Without a list of namespaces it watches all.
// Its own namespace, where its lease is, is the first of them.
func startOperator(program, directory string, p *proxy.Proxy, namespaces []string, args ...string) (*controlplane.Operator, error) {
	return controlplane.StartOperator(controlplane.OperatorOptions{
		Program:   program,
		Directory: directory,
		Config:    p.Config(),
		Watched:   namespaces,
		Namespace: append(slices.Clone(namespaces), metav1.NamespaceDefault)[0],
		Args:      append([]string{"--metrics-bind-address=0"}, args...),
	})
}

// Mutant: keeps its lease when it stops
// Guarantee: 8
// Suite: two leaders
// Package: cmd

package main

import "sigs.k8s.io/controller-runtime/pkg/manager"

func managerOptions(s settings) manager.Options {
	options := originalManagerOptions(s)
	options.LeaderElectionReleaseOnCancel = false
	return options
}

// Mutant: gives a namespace every worker
// Guarantee: 7
// Suite: isolation
// Package: internal/queue

package queue

import "sigs.k8s.io/controller-runtime/pkg/reconcile"

func (s *Seats) occupy(reconcile.Request, bool) bool { return true }
func (s *Seats) release(reconcile.Request)           {}

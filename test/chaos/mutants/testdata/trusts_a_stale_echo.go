// Mutant: trusts a stale Echo
// Guarantee: 5
// Suite: stale reads
// Package: internal/controller

package controller

import "context"

func (rec *reconciliation) checkNewest(context.Context) error { return nil }

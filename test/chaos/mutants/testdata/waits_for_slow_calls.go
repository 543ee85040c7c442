// Mutant: holds its worker during a slow call
// Guarantee: 7
// Suite: isolation
// Package: internal/controller

package controller

import "context"

func call(_ context.Context, function func() error) error { return function() }

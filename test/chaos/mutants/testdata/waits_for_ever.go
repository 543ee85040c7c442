// Mutant: waits for a verifier without a deadline
// Guarantee: 6
// Suite: obstacles
// Package: internal/status

package status

func (a *Assessment) overdueVerifier(workload, string) string { return "" }

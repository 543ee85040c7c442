package controller

import (
	"fmt"
	"slices"

	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// requests returns what the operator asked for since the mark: verb, resource and object
// of each request. Watches do not count, nor the reads that only learn which types exist.
func requests(since int64) []string {
	var requests []string
	for _, event := range requested(since) {
		if ref := event.ObjectRef; ref != nil && event.Verb != "watch" {
			requests = append(requests, fmt.Sprintf("%s %s/%s %s/%s", event.Verb, ref.Resource, ref.Subresource, ref.Namespace, ref.Name))
		}
	}
	return requests
}

// requested returns the operator's part of the audit log since the mark.
func requested(since int64) []controlplane.AuditEvent {
	events, err := audit.Since(since, operatorUser)
	Expect(err).NotTo(HaveOccurred())
	return events
}

// mark returns the present end of the audit log.
func mark() int64 {
	end, err := audit.Mark()
	Expect(err).NotTo(HaveOccurred())
	return end
}

// startUp is what an operator asks for when it starts: one list for each type it watches.
func startUp(requests []string) []string {
	return slices.DeleteFunc(requests, func(request string) bool {
		return slices.Contains([]string{
			"list echoes/ /", "list deployments/ /", "list services/ /", "list poddisruptionbudgets/ /", "list pods/ /",
		}, request)
	})
}

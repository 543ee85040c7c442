package controller

import (
	"fmt"
	"slices"

	. "github.com/onsi/gomega"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// requestsSince returns the operator's requests since the mark, as verb, resource and object.
// It omits watches, and requests that read which types exist.
func requestsSince(mark int64) []string {
	var requests []string
	for _, event := range auditEventsSince(mark) {
		if ref := event.ObjectRef; ref != nil && event.Verb != "watch" {
			requests = append(requests, fmt.Sprintf("%s %s/%s %s/%s", event.Verb, ref.Resource, ref.Subresource, ref.Namespace, ref.Name))
		}
	}
	return requests
}

// auditEventsSince returns the operator's events in the audit log since the mark.
func auditEventsSince(mark int64) []controlplane.AuditEvent {
	events, err := audit.Since(mark, operatorUser)
	Expect(err).NotTo(HaveOccurred())
	return events
}

// auditMark returns the current end of the audit log.
func auditMark() int64 {
	end, err := audit.Mark()
	Expect(err).NotTo(HaveOccurred())
	return end
}

// withoutInitialLists removes the requests of every start: one list for each watched type.
func withoutInitialLists(requests []string) []string {
	lists := []string{"list echoes/ /", "list pods/ /"}
	for _, kind := range children.Kinds {
		lists = append(lists, "list "+kind.Resource.Resource+"/ /")
	}
	return slices.DeleteFunc(requests, func(request string) bool { return slices.Contains(lists, request) })
}

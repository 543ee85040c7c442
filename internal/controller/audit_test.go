package controller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/gomega"
)

// auditLog is the API server's own record of every request that it answered.
type auditLog struct{ policy, path string }

func newAuditLog(directory string) auditLog {
	log := auditLog{policy: filepath.Join(directory, "audit-policy.yaml"), path: filepath.Join(directory, "audit.log")}
	policy := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"
	Expect(os.WriteFile(log.policy, []byte(policy), 0o600)).To(Succeed())
	return log
}

// auditEvent is what the log says of one request.
type auditEvent struct {
	Verb, UserAgent, RequestURI string

	User      struct{ Username string }
	ObjectRef *struct{ APIGroup, Resource, Subresource, Namespace, Name string }

	Annotations map[string]string
}

// ofOperator returns what the operator asked for since the mark.
func (l auditLog) ofOperator(since int64) (events []auditEvent) {
	for line := range bytes.Lines(l.written()[since:]) {
		var event auditEvent
		Expect(json.Unmarshal(line, &event)).To(Succeed())
		if event.User.Username == operatorUser {
			events = append(events, event)
		}
	}
	return events
}

// written returns the log up to its last line that is complete.
func (l auditLog) written() []byte {
	log, err := os.ReadFile(l.path)
	Expect(err).NotTo(HaveOccurred())
	return log[:bytes.LastIndexByte(log, '\n')+1]
}

// requests returns what the operator asked for since the mark: verb, resource and object
// of each request. Watches do not count, nor the reads that only learn which types exist.
func (l auditLog) requests(since int64) []string {
	var requests []string
	for _, event := range l.ofOperator(since) {
		if ref := event.ObjectRef; ref != nil && event.Verb != "watch" {
			requests = append(requests, fmt.Sprintf("%s %s/%s %s/%s", event.Verb, ref.Resource, ref.Subresource, ref.Namespace, ref.Name))
		}
	}
	return requests
}

// mark returns the present end of the log.
func (l auditLog) mark() int64 { return int64(len(l.written())) }

// startUp is what an operator asks for when it starts: one list for each type it watches.
func startUp(requests []string) []string {
	return slices.DeleteFunc(requests, func(request string) bool {
		return slices.Contains([]string{
			"list echoes/ /", "list deployments/ /", "list services/ /", "list poddisruptionbudgets/ /", "list pods/ /",
		}, request)
	})
}

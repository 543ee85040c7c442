package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// AuditLog is the file in which an API server notes every request that it answered.
type AuditLog string

const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"

// AuditEvent is what the log says of one request.
type AuditEvent struct {
	Verb, UserAgent, RequestURI string
	// Stage is ResponseComplete; a watch has a ResponseStarted before.
	Stage string

	User      struct{ Username string }
	ObjectRef *struct{ APIGroup, Resource, Subresource, Namespace, Name string }

	RequestReceivedTimestamp time.Time
	// StageTimestamp is when the answer was complete.
	StageTimestamp time.Time

	Annotations map[string]string
}

// Mark returns the present end of the log.
func (l AuditLog) Mark() (int64, error) {
	log, err := l.written(0)
	return int64(len(log)), err
}

// Since returns what a user asked for since the mark.
func (l AuditLog) Since(mark int64, user string) (events []AuditEvent, err error) {
	log, err := l.written(mark)
	if err != nil {
		return nil, err
	}
	name := []byte(`"username":"` + user + `"`)
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, name) {
			continue // It may be a long log.
		}
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if event.User.Username == user {
			events = append(events, event)
		}
	}
	return events, nil
}

// written returns the log from the mark to its last line that is complete.
func (l AuditLog) written(mark int64) ([]byte, error) {
	log, err := os.ReadFile(string(l))
	if err != nil {
		return nil, err
	}
	return log[mark : bytes.LastIndexByte(log, '\n')+1], nil
}

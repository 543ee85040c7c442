package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// AuditLog is the file in which an API server records every request that it responded.
type AuditLog string

const auditPolicy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"

// AuditEvent is the log entry of one request.
type AuditEvent struct {
	Verb, UserAgent, RequestURI string

	User      struct{ Username string }
	ObjectRef *struct{ APIGroup, Resource, Subresource, Namespace, Name string }

	RequestReceivedTimestamp time.Time
	// StageTimestamp is the time at which the response was complete.
	StageTimestamp time.Time

	Annotations map[string]string
}

// maxLine exceeds the length of every line of the log, in bytes.
const maxLine = 1 << 20

// Mark returns the current end of the log, for Since.
func (l AuditLog) Mark() (int64, error) {
	file, err := os.Stat(string(l))
	if err != nil {
		return 0, err
	}
	start := max(0, file.Size()-maxLine)
	log, err := l.readFrom(start)
	return start + int64(len(log)), err
}

// Since returns the requests that a user made after the mark.
func (l AuditLog) Since(mark int64, user string) (events []AuditEvent, err error) {
	log, err := l.readFrom(mark)
	if err != nil {
		return nil, err
	}
	name := []byte(`"username":"` + user + `"`)
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, name) {
			continue // Decoding every line of a long log would take seconds.
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

// readFrom returns the log from the mark to the end of its last complete line. It does not read
// what precedes the mark, because the log may be long.
func (l AuditLog) readFrom(mark int64) (log []byte, err error) {
	file, err := os.Open(string(l))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(mark, io.SeekStart); err != nil {
		return nil, err
	}
	log, err = io.ReadAll(file)
	return log[:bytes.LastIndexByte(log, '\n')+1], err
}

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

// longestLine is more than any line of the log has, in bytes.
const longestLine = 1 << 20

// Mark returns the present end of the log.
func (l AuditLog) Mark() (int64, error) {
	file, err := os.Stat(string(l))
	if err != nil {
		return 0, err
	}
	start := max(0, file.Size()-longestLine)
	log, err := l.written(start)
	return start + int64(len(log)), err
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

// written returns the log from the mark to its last line that is complete. It may be long, so
// that what comes before the mark is not read.
func (l AuditLog) written(mark int64) (log []byte, err error) {
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

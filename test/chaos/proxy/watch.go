package proxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// maxEvent is the maximum size of an event in bytes. An Echo with the longest message is far below.
const maxEvent = 4 << 20

// errWatchClosed closes a watch without an error for the client.
var errWatchClosed = errors.New("watch closed")

// watch forwards a watch, event by event.
func (p *Proxy) watch(w http.ResponseWriter, r *http.Request, request Request) {
	if p.staleSnapshot(request.Resource) != nil && r.URL.Query().Get("sendInitialEvents") == "true" {
		// An API server that does not support streaming lists responds like this. The client
		// then lists, and lists can be served stale.
		respondError(w, request, http.StatusUnprocessableEntity)
		return
	}
	response, err := p.send(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = response.Body.Close() }() // The body may not have been read to its end.
	copyHeader(w, response)
	w.WriteHeader(response.StatusCode)

	p.mu.Lock()
	p.watches++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.watches--
		p.mu.Unlock()
	}()

	stream := &stream{proxy: p, writer: w, request: request, expired: make(chan struct{})}
	flush(w)
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, maxEvent)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(scanner.Bytes()):
			case <-r.Context().Done():
				return
			}
		}
	}()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-stream.expired:
			stream.expire()
			return
		case line, open := <-lines:
			if !open || stream.forward(r, line) != nil {
				return
			}
		}
	}
}

// stream is an open watch.
type stream struct {
	proxy   *Proxy
	writer  http.ResponseWriter
	request Request
	// expired is closed dropTimeout after the first event was dropped.
	expired  chan struct{}
	dropping bool
}

// forward forwards one event, with the fault that the plan returns. An error ends the watch.
func (s *stream) forward(r *http.Request, line []byte) error {
	if snapshot := s.proxy.staleSnapshot(s.request.Resource); snapshot != nil {
		select {
		case <-snapshot.resumed:
		case <-r.Context().Done():
			return errWatchClosed
		}
	}
	fault := Deliver
	if isObject(line) {
		fault = s.proxy.eventFault(s.request)
	}
	switch {
	case fault == CloseWatch:
		return errWatchClosed
	case fault == Expire:
		s.expire()
		return errWatchClosed
	case fault == Drop && !s.dropping:
		s.dropping = true
		time.AfterFunc(dropTimeout, func() { close(s.expired) })
	}
	if s.dropping {
		return nil // A later event would reveal that one is missing.
	}
	times := 1
	if fault == Duplicate {
		times = 2
	}
	for range times {
		if _, err := s.writer.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	flush(s.writer)
	return nil
}

func (p *Proxy) eventFault(request Request) EventFault {
	p.mu.Lock()
	plan := p.plan
	p.mu.Unlock()
	if plan == nil {
		return Deliver
	}
	fault := plan.Event(request)
	if fault != Deliver {
		p.count(map[EventFault]string{Drop: "event dropped", Duplicate: "event duplicated", CloseWatch: "watch closed", Expire: "410 Gone"}[fault])
	}
	return fault
}

// expire sends the error that the watch's resource version is too old.
func (s *stream) expire() {
	gone, _ := json.Marshal(metav1.Status{ // Encoding these fields cannot fail.
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
		Message: "too old resource version, injected by the fault proxy",
	})
	event, _ := json.Marshal(map[string]any{"type": watch.Error, "object": json.RawMessage(gone)})
	_, _ = s.writer.Write(append(event, '\n')) // The operator may have exited.
	flush(s.writer)
}

// isObject reports whether the event carries an object. Bookmarks do not: they get no faults,
// because a client needs one to know that its initial list is complete.
func isObject(line []byte) bool {
	var event struct{ Type watch.EventType }
	if json.Unmarshal(line, &event) != nil {
		return false
	}
	return event.Type == watch.Added || event.Type == watch.Modified || event.Type == watch.Deleted
}

func flush(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush() // The operator may have exited.
}

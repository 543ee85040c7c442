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

// maxEvent is the most bytes of an event; an Echo of the largest message is far below.
const maxEvent = 4 << 20

// errEnd ends a watch without a word.
var errEnd = errors.New("end of watch")

// watch passes a watch on, event by event.
func (p *Proxy) watch(w http.ResponseWriter, r *http.Request, request Request) {
	if p.frozenView(request.Resource) != nil && r.URL.Query().Get("sendInitialEvents") == "true" {
		// So answers an API server that knows only lists, and those may lag.
		refuse(w, request, http.StatusUnprocessableEntity)
		return
	}
	response, err := p.ask(r)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = response.Body.Close() }() // It may have been left before its end.
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

	stream := &stream{proxy: p, writer: w, request: request, hidden: make(chan struct{})}
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
		case <-stream.hidden:
			stream.expire()
			return
		case line, open := <-lines:
			if !open || stream.pass(r, line) != nil {
				return
			}
		}
	}
}

// stream is one watch.
type stream struct {
	proxy   *Proxy
	writer  http.ResponseWriter
	request Request
	// hidden is closed when an event has been hidden for long enough.
	hidden   chan struct{}
	isHiding bool
}

// pass makes of one event what the plan says. An error ends the watch.
func (s *stream) pass(r *http.Request, line []byte) error {
	if view := s.proxy.frozenView(s.request.Resource); view != nil {
		select {
		case <-view.thawed:
		case <-r.Context().Done():
			return errEnd
		}
	}
	fault := Deliver
	if isObject(line) {
		fault = s.proxy.eventFault(s.request)
	}
	switch {
	case fault == Cut:
		return errEnd
	case fault == Expire:
		s.expire()
		return errEnd
	case fault == Drop && !s.isHiding:
		s.isHiding = true
		time.AfterFunc(dropped, func() { close(s.hidden) })
	}
	if s.isHiding {
		return nil // What came after the hidden event would give it away.
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
		p.count(map[EventFault]string{Drop: "event dropped", Duplicate: "event duplicated", Cut: "watch cut", Expire: "410 Gone"}[fault])
	}
	return fault
}

// expire tells the operator that its version is too old.
func (s *stream) expire() {
	gone, _ := json.Marshal(metav1.Status{ // It has no fields that could fail.
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone,
		Message: "too old resource version, by the fault proxy",
	})
	event, _ := json.Marshal(map[string]any{"type": watch.Error, "object": json.RawMessage(gone)})
	_, _ = s.writer.Write(append(event, '\n')) // The operator may be gone.
	flush(s.writer)
}

// isObject tells events of objects from bookmarks, without which a client would never know
// that it has seen everything.
func isObject(line []byte) bool {
	var event struct{ Type watch.EventType }
	if json.Unmarshal(line, &event) != nil {
		return false
	}
	return event.Type == watch.Added || event.Type == watch.Modified || event.Type == watch.Deleted
}

func flush(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush() // The operator may be gone.
}

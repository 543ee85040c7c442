package server

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
)

// reason is why a connection ended.
type reason int32

const (
	_         reason = iota
	left             // The client closed it.
	responded        // The response said so.
	rejected         // The request was rejected.
	slow             // A deadline passed.
	unread           // The client did not read its response.
	room             // Others waited.
	failed           // The server has a defect.
)

var reasons = [...]string{left: "client", responded: "response", rejected: "rejected", slow: "deadline", unread: "unread", room: "bound", failed: "panic"}

// rejections are the labels of the status codes of rejected requests.
var rejections = [...]struct {
	status int
	reason string
}{
	{http.StatusBadRequest, "malformed"}, {http.StatusRequestHeaderFieldsTooLarge, "large_head"},
	{http.StatusNotImplemented, "connect"}, {http.StatusHTTPVersionNotSupported, "version"},
}

// counters count since the start.
type counters struct {
	requests, bytes atomic.Int64
	rejected        [len(rejections)]atomic.Int64
	ended           [len(reasons)]atomic.Int64
}

func (c *counters) reject(status int) {
	for i, r := range rejections {
		if r.status == status {
			c.rejected[i].Add(1)
		}
	}
}

// metrics returns the metrics in the text format of Prometheus.
func (s *Server) metrics() *Response {
	var b bytes.Buffer
	metric := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind) }
	gauge := func(name, help string, value int) {
		metric(name, "gauge", help)
		fmt.Fprintf(&b, "%s %d\n", name, value)
	}
	metric("echo_server_requests_total", "counter", "Requests that got the declared response.")
	fmt.Fprintf(&b, "echo_server_requests_total{code=\"%d\"} %d\n", s.response.Status, s.counters.requests.Load())
	metric("echo_server_rejected_total", "counter", "Requests that the server rejected.")
	for i, r := range rejections {
		fmt.Fprintf(&b, "echo_server_rejected_total{reason=%q} %d\n", r.reason, s.counters.rejected[i].Load())
	}
	metric("echo_server_response_bytes_total", "counter", "Bytes of responses.")
	fmt.Fprintf(&b, "echo_server_response_bytes_total %d\n", s.counters.bytes.Load())
	metric("echo_server_connections_closed_total", "counter", "Connections that ended.")
	for i, r := range reasons[left:] {
		fmt.Fprintf(&b, "echo_server_connections_closed_total{reason=%q} %d\n", r, s.counters.ended[int(left)+i].Load())
	}
	gauge("echo_server_connections", "Open connections.", s.count())
	gauge("echo_server_connections_max", "Most connections that the server keeps, by its memory limit.", s.maxConnections)
	gauge("echo_server_draining", "1 while the server stops.", map[bool]int{true: 1}[s.draining.Load()])
	return &Response{Status: http.StatusOK, headers: []string{"Content-Type: text/plain; version=0.0.4; charset=utf-8"}, Body: b.Bytes()}
}

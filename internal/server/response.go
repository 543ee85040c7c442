package server

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Response is what the server sends for every request.
type Response struct {
	// Status is the status code, 200 to 599.
	Status int
	// Body is the body, byte for byte. The status codes 204, 205 and 304 have none.
	Body []byte
	// headers are the lines of the header that the user declares.
	headers []string
}

// reserved are the headers that describe the connection or the message, so the server sets them itself.
var reserved = []string{"connection", "content-length", "date", "keep-alive", "trailer", "transfer-encoding", "upgrade"}

// AddHeader adds the header "Name: value". The error says what RFC 9110 or the server does not allow.
func (r *Response) AddHeader(header string) error {
	name, value, found := strings.Cut(header, ":")
	value = strings.Trim(value, " \t")
	line := name + ": " + value
	repeated := func(other string) bool {
		return len(other) > len(name) && strings.EqualFold(other[:len(name)+1], line[:len(name)+1])
	}
	switch {
	case !found || !httpguts.ValidHeaderFieldName(name):
		return fmt.Errorf("%q is not a name of letters, digits and hyphens, a colon, and a value", header)
	case !httpguts.ValidHeaderFieldValue(value):
		return fmt.Errorf("the value of the header %s contains a control character, for example a line break", name)
	case slices.Contains(reserved, strings.ToLower(name)):
		return fmt.Errorf("the server sets the header %s itself", name)
	case slices.ContainsFunc(r.headers, repeated):
		return fmt.Errorf("the header %s is declared twice", name)
	}
	r.headers = append(r.headers, line)
	return nil
}

// persistence is what a response says about its connection.
type persistence int

const (
	implicit persistence = iota // HTTP/1.1 keeps a connection open unless the response says otherwise.
	explicit                    // HTTP/1.0 closes a connection unless the response says otherwise.
	closing
)

// message is a response in the format of HTTP/1.1.
type message struct{ head, all []byte }

// render returns the response for each persistence at a time, which its date tells.
func (r *Response) render(now time.Time) *[closing + 1]message {
	lines := append([]string{fmt.Sprintf("HTTP/1.1 %d %s", r.Status, http.StatusText(r.Status))}, r.headers...)
	body := r.Body
	switch r.Status {
	case http.StatusNoContent, http.StatusNotModified: // They have no length either.
		body = nil
	case http.StatusResetContent:
		body = nil
		lines = append(lines, "Content-Length: 0")
	default:
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(strings.ToLower(line), "content-type:") }) {
			lines = append(lines, "Content-Type: text/plain; charset=utf-8")
		}
	}
	lines = append(lines, "Date: "+now.UTC().Format(http.TimeFormat))
	var messages [closing + 1]message
	for p, connection := range []string{implicit: "", explicit: "Connection: keep-alive\r\n", closing: "Connection: close\r\n"} {
		head := []byte(strings.Join(lines, "\r\n") + "\r\n" + connection + "\r\n")
		messages[p] = message{head, bytes.Join([][]byte{head, body}, nil)}
	}
	return &messages
}

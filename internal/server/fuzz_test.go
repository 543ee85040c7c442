package server

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzRequest compares where requests end with net/http. If a server behind a proxy that parses like net/http found
// another number of requests in the same bytes, a client could smuggle requests.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"", get, "\r\n", "GET / HTTP/1.0\r\n\r\n", "OPTIONS * HTTP/1.1\nHost: a\nX: y\n\n",
		"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n Content-Length: 3\r\nConnection: close\r\n\r\nabc",
		chunks + "3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n", chunks + "0x3\r\nabc\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	// A response without a body has the same format for every method.
	s := New(Response{Status: http.StatusNoContent}, 64)
	f.Fuzz(func(t *testing.T, sent []byte) {
		// What is open is then a request, so the server waits for nothing but another one.
		if sent = append(sent, get...); len(sent) > headSize {
			return // The server bounds what it reads.
		}
		accepted, isOpen := s.exchange(t, listener, sent)
		parsed, err := parse(sent)
		var invalid uriError
		switch {
		case errors.As(err, &invalid):
			// The server responds to every target alike, so it does not parse it.
		case accepted > parsed:
			t.Errorf("%d requests are accepted, net/http parses %d: %v", accepted, parsed, err)
		case isOpen && accepted < parsed:
			t.Errorf("%d requests are accepted and the connection stays open, net/http parses %d", accepted, parsed)
		}
	})
}

// exchange sends bytes to the server, and returns how many requests it accepts, and whether it then waits for another.
func (s *Server) exchange(t *testing.T, listener net.Listener, sent []byte) (accepted int, isOpen bool) {
	peer, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Skip(err) // The machine has no free port.
	}
	defer peer.Close()
	tcp, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	// The server reads from memory. Without linger, many connections leave no ports in the state TIME_WAIT.
	_ = peer.(*net.TCPConn).SetLinger(0)
	_ = tcp.SetReadDeadline(time.Now())
	c, r := newConnection(s, tcp.(*net.TCPConn)), &reader{Reader: bufio.NewReaderSize(bytes.NewReader(sent), headSize)}
	for c.requests(r) {
		if _, err := r.Peek(1); err != nil {
			break
		}
	}
	isOpen = c.phase.Load() != lingering
	_ = c.tcp.CloseWrite()
	for responses := bufio.NewReader(peer); ; {
		response, err := http.ReadResponse(responses, nil)
		if err != nil {
			return accepted, isOpen
		}
		isOpen = isOpen && !response.Close
		if response.StatusCode == http.StatusNoContent {
			accepted++
		}
	}
}

type uriError struct{ error }

// parse returns the number of requests in the bytes, and the error that ends them.
func parse(sent []byte) (n int, err error) {
	for r := bufio.NewReader(bytes.NewReader(sent)); ; n++ {
		for {
			// RFC 9112 tells a server to ignore empty lines before a request. net/http does not.
			b, _ := r.Peek(2)
			if end := bytes.IndexByte(b, '\n'); end < 0 || end == 1 && b[0] != '\r' {
				break
			} else {
				_, _ = r.Discard(end + 1)
			}
		}
		request, err := http.ReadRequest(r)
		if err != nil {
			if strings.Contains(err.Error(), "parse \"") || strings.Contains(err.Error(), "invalid URI") {
				err = uriError{err}
			}
			return n, err
		}
		// A client that expects an interim response may omit the body: the connection ends there.
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return n + 1, err
		}
	}
}

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
		get, get + get, "\r\n" + get, "GET / HTTP/1.0\r\n\r\n" + get, "OPTIONS * HTTP/1.1\nHost: a\nX: y\n\n",
		"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" + get,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + get,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n" + get,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n" + get,
		"POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n Content-Length: 3\r\nConnection: close\r\n\r\nabc" + get,
		chunks + "3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n" + get, chunks + "0x3\r\nabc\r\n0\r\n\r\n" + get,
	} {
		f.Add([]byte(seed))
	}
	// A response without a body has the same format for every method.
	_, address := start(f, Response{Status: http.StatusNoContent}, 4000)
	f.Fuzz(func(t *testing.T, sent []byte) {
		if len(sent) > headSize {
			return // The server bounds what it reads.
		}
		accepted, isOpen := exchange(t, address, sent)
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

// exchange sends bytes, and returns how many requests the server accepts, and whether it waits for another one.
func exchange(t *testing.T, address string, sent []byte) (accepted int, isOpen bool) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Skip(err) // The machine has no free port.
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	if _, err := conn.Write(sent); err != nil {
		return 0, false
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, false
	}
	text, err := io.ReadAll(conn)
	if err != nil && !errors.Is(err, io.EOF) && len(text) == 0 {
		return 0, false
	}
	r := bufio.NewReader(bytes.NewReader(text))
	for {
		response, err := http.ReadResponse(r, nil)
		if err != nil {
			return accepted, accepted > 0
		}
		if response.StatusCode != http.StatusNoContent {
			return accepted, false
		}
		if accepted++; response.Close {
			return accepted, false
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

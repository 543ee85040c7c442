package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// FuzzRequest compares the server with net/http's: whatever both accept gets the same response. If a server behind a proxy
// that parses like net/http found another number of requests in the same bytes, a client could smuggle requests.
// TestDifferencesFromNetHTTP lists what one of them rejects.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		"", get, "\r\n", "GET / HTTP/1.0\r\n\r\n", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\nHost: a\nX: y\n\n",
		"POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nX: y\r\n Content-Length: 3\r\nConnection: close\r\n\r\nabc",
		chunks + "3;x=y\r\nabc\r\n0\r\nX: y\r\n\r\n", chunks + "0x3\r\nabc\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	p := newPair(f)
	f.Fuzz(func(t *testing.T, sent []byte) {
		// What is open is then a request, so the server waits for nothing but another one.
		if sent = append(sent, get...); len(sent) > headSize {
			return // The server bounds what it reads.
		}
		methods, err := parse(sent)
		ours, isOpen := accepted(t, p.ours, sent, methods)
		theirs, _ := accepted(t, p.theirs, sent, methods)
		for i := range min(len(ours), len(theirs)) {
			if ours[i] != theirs[i] {
				t.Errorf("response %d to %q is %q, want %q as of net/http", i+1, methods[i], ours[i], theirs[i])
			}
		}
		var invalid uriError
		switch {
		case errors.As(err, &invalid):
			// The server responds to every target alike, so it does not parse it.
		case len(ours) > len(methods):
			t.Errorf("%d requests are accepted, net/http parses %d: %v", len(ours), len(methods), err)
		case isOpen && len(ours) < len(methods):
			t.Errorf("%d requests are accepted and the connection stays open, net/http parses %d", len(ours), len(methods))
		}
	})
}

func TestDifferencesFromNetHTTP(t *testing.T) {
	p := newPair(t)
	head := func(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }
	for name, test := range map[string]struct {
		sent         string
		ours, theirs bool
	}{
		"a target that is no URL":             {head("GET /%zz HTTP/1.1", "Host: a"), true, false},
		"lines that end with LF":              {"GET / HTTP/1.1\nHost: a\n\n", false, true},
		"a folded line":                       {head("GET / HTTP/1.1", "Host: a", "X: y", " z"), false, true},
		"two equal lengths":                   {head("POST / HTTP/1.1", "Host: a", "Content-Length: 0", "Content-Length: 0"), false, true},
		"a chunked body with a length":        {head("POST / HTTP/1.1", "Host: a", "Content-Length: 3", "Transfer-Encoding: chunked") + "0\r\n\r\n", false, true},
		"CONNECT":                             {head("CONNECT a:443 HTTP/1.1", "Host: a:443"), false, true},
		"a head of 40 KiB":                    {head("GET / HTTP/1.1", "Host: a", "X: "+strings.Repeat("a", 40<<10)), false, true},
		"both: a request":                     {get, true, true},
		"neither: a space before the colon":   {head("GET / HTTP/1.1", "Host : a"), false, false},
		"neither: Transfer-Encoding identity": {head("POST / HTTP/1.1", "Host: a", "Transfer-Encoding: identity"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			method, _, _ := strings.Cut(test.sent, " ")
			ours, _ := accepted(t, p.ours, []byte(test.sent), []string{method})
			theirs, _ := accepted(t, p.theirs, []byte(test.sent), []string{method})
			if len(ours) == 1 != test.ours || len(theirs) == 1 != test.theirs {
				t.Errorf("accepted by the server: %t, by net/http: %t, want %t and %t", len(ours) == 1, len(theirs) == 1, test.ours, test.theirs)
			}
		})
	}
}

// pair are the addresses of this server and of net/http's. Both have the same response.
type pair struct{ ours, theirs string }

func newPair(t testing.TB) (p pair) {
	_, p.ours = start(t, hello(), 64)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.theirs = listener.Addr().String()
	server := http.Server{ReadTimeout: timeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // A body that is malformed ends the connection.
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, body)
	})}
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }()
	return p
}

// accepted sends bytes to a server, and returns its responses to the requests that it accepts, and whether it then waits
// for another one.
func accepted(t *testing.T, address string, sent []byte, methods []string) (responses []string, isOpen bool) {
	peer, err := net.Dial("tcp", address)
	if err != nil {
		t.Skip(err) // The machine has no free port.
	}
	defer peer.Close()
	_ = peer.SetDeadline(time.Now().Add(timeout))
	// Without linger, many connections leave no ports in the state TIME_WAIT.
	_ = peer.(*net.TCPConn).SetLinger(0)
	go func() {
		_, _ = peer.Write(sent) // The server may have closed the connection.
		_ = peer.(*net.TCPConn).CloseWrite()
	}()
	isOpen = true
	for r := bufio.NewReader(peer); ; {
		method := http.MethodGet
		if len(responses) < len(methods) {
			method = methods[len(responses)]
		}
		response, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return responses, isOpen
		}
		text, _ := io.ReadAll(response.Body) // The length shows what is missing.
		isOpen = isOpen && !response.Close
		switch {
		case response.StatusCode == http.StatusContinue:
		case response.StatusCode != http.StatusOK:
			return responses, false
		default:
			responses = append(responses, fmt.Sprint(response.ContentLength, response.Header.Get("Content-Type"), string(text)))
		}
	}
}

type uriError struct{ error }

// parse returns the methods of the requests in the bytes, and the error that ends them.
func parse(sent []byte) (methods []string, err error) {
	for r := bufio.NewReader(bytes.NewReader(sent)); ; {
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
			return methods, err
		}
		methods = append(methods, request.Method)
		// A client that expects an interim response may omit the body: the connection ends there.
		if _, err := io.Copy(io.Discard, request.Body); err != nil {
			return methods, err
		}
	}
}

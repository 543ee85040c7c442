package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"golang.org/x/sys/unix"
)

const (
	get     = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	body    = "hello\n"
	chunks  = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
	timeout = 8 * time.Second
)

// start serves a response on loopback, without a drain at the end of the test.
func start(t testing.TB, response Response, maxConnections int) (*Server, string) {
	t.Helper()
	s := New(response, maxConnections)
	return s, s.start(t)
}

func (s *Server) start(t testing.TB) (address string) {
	t.Helper()
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go s.Serve(context.Background(), listener)
	return listener.Addr().String()
}

func hello() Response { return Response{Status: http.StatusOK, Body: []byte(body)} }

// client is one connection.
type client struct {
	*net.TCPConn
	r *bufio.Reader
}

func dial(t testing.TB, address string) *client {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return &client{conn.(*net.TCPConn), bufio.NewReader(conn)}
}

// send writes from another goroutine, because the server may respond, and stop to read, before all is sent.
func (c *client) send(text string) {
	go func() { _, _ = io.WriteString(c, text) }() // The responses show what the server has read.
}

// response reads a response to a request with the method.
func (c *client) response(method string) (*http.Response, string, error) {
	response, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(response.Body)
	return response, string(text), err
}

// get sends a request, and returns the error of a missing response.
func (c *client) get() error { return c.getText(body) }

// getText is get for another body.
func (c *client) getText(want string) error {
	if _, err := io.WriteString(c, get); err != nil {
		return err
	}
	response, text, err := c.response(http.MethodGet)
	if err == nil && (response.StatusCode != http.StatusOK || text != want) {
		err = fmt.Errorf("response is %s with body %q, want 200 with %q", response.Status, text, want)
	}
	return err
}

// expectRejected fails unless the server rejects the request.
func (c *client) expectRejected(t *testing.T) {
	t.Helper()
	if response, _, err := c.response(http.MethodGet); err != nil || response.StatusCode < 400 || !response.Close {
		t.Errorf("response is %v, error %v, want an error and Connection: close", response, err)
	}
	_ = c.Close()
}

// expectClosed fails unless the server closes the connection without another response, within d.
func (c *client) expectClosed(t *testing.T, d time.Duration) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(d))
	if rest, err := io.ReadAll(c.r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection is open after %s, want it closed", d)
	} else if len(rest) > 0 {
		t.Errorf("got %.80q before the connection was closed, want nothing", rest)
	}
}

// Each request is followed by a valid one, which must have a response only if the connection stays open.
func TestRequestsGetResponsesAndKeepTheirConnection(t *testing.T) {
	t.Parallel()
	const ok, bad = http.StatusOK, http.StatusBadRequest
	head := func(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }
	post := func(lines ...string) string { return head(append([]string{"POST / HTTP/1.1", "Host: a"}, lines...)...) }
	for name, test := range map[string]struct {
		send string
		want []int
		open bool
	}{
		"GET":                         {get, []int{ok}, true},
		"PUT with a body":             {head("PUT / HTTP/1.1", "Host: a", "Content-Length: 3") + "abc", []int{ok}, true},
		"GET with a body":             {head("GET / HTTP/1.1", "Host: a", "Content-Length: 3") + "abc", []int{ok}, true},
		"body that is a request":      {post(fmt.Sprintf("Content-Length: %d", len(get))) + get, []int{ok}, true},
		"DELETE":                      {head("DELETE /x HTTP/1.1", "Host: a"), []int{ok}, true},
		"TRACE":                       {head("TRACE / HTTP/1.1", "Host: a"), []int{ok}, true},
		"unknown method":              {head("BREW-1 / HTTP/1.1", "Host: a"), []int{ok}, true},
		"path //":                     {head("GET // HTTP/1.1", "Host: a"), []int{ok}, true},
		"path with //":                {head("GET /a//b HTTP/1.1", "Host: a"), []int{ok}, true},
		"path with dot segments":      {head("GET /x/../health HTTP/1.1", "Host: a"), []int{ok}, true},
		"path with invalid encoding":  {head("GET /%zz HTTP/1.1", "Host: a"), []int{ok}, true},
		"query":                       {head("GET /?a=%00&b=//#c HTTP/1.1", "Host: a"), []int{ok}, true},
		"absolute-form":               {head("GET http://b/ HTTP/1.1", "Host: a"), []int{ok}, true},
		"OPTIONS *":                   {head("OPTIONS * HTTP/1.1", "Host: a"), []int{ok}, true},
		"GET *":                       {head("GET * HTTP/1.1", "Host: a"), []int{bad}, false},
		"CONNECT":                     {head("CONNECT a:443 HTTP/1.1", "Host: a:443"), []int{http.StatusNotImplemented}, false},
		"HTTP/1.0":                    {head("GET / HTTP/1.0"), []int{ok}, false},
		"HTTP/1.0 keep-alive":         {head("GET / HTTP/1.0", "Connection: keep-alive"), []int{ok}, true},
		"Connection: close":           {head("GET / HTTP/1.1", "Host: a", "Connection: Close"), []int{ok}, false},
		"Connection: x, close":        {head("GET / HTTP/1.1", "Host: a", "Connection: x, close"), []int{ok}, false},
		"1,000 pipelined requests":    {strings.Repeat(get, 1000), repeat(ok, 1000), true},
		"empty line before a request": {"\r\n" + get, []int{ok}, true},
		"lines that end with LF":      {"GET / HTTP/1.1\nHost: a\n\n", []int{bad}, false},
		"one line that ends with LF":  {"GET / HTTP/1.1\r\nHost: a\nX: a\r\n\r\n", []int{bad}, false},
		"Upgrade":                     {head("GET / HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: websocket"), []int{ok}, true},
		"Expect without a body":       {head("GET / HTTP/1.1", "Host: a", "Expect: 100-continue"), []int{ok}, true},
		"Expect, body not sent":       {post("Content-Length: 5", "Expect: 100-continue"), []int{ok}, false},
		"Expect, body sent":           {post("Content-Length: 5", "Expect: 100-continue") + "abcde", []int{ok}, false},

		"chunked":                         {chunks + "3\r\nabc\r\n0\r\n\r\n", []int{ok}, true},
		"chunked, extensions":             {chunks + "3;a=b\r\nabc\r\n0;c\r\n\r\n", []int{ok}, true},
		"chunked, trailer":                {chunks + "3\r\nabc\r\n0\r\nX-Sum: 1\r\n\r\n", []int{ok}, true},
		"chunked, then a request":         {chunks + "1\r\na\r\n0\r\n\r\n" + get, []int{ok, ok}, true},
		"chunked and Content-Length":      {post("Transfer-Encoding: chunked", "Content-Length: 3") + "0\r\n\r\n", []int{bad}, false},
		"Content-Length and chunked":      {post("Content-Length: 3", "Transfer-Encoding: chunked") + "0\r\n\r\n", []int{bad}, false},
		"chunked twice":                   {post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), []int{bad}, false},
		"chunked, chunked":                {post("Transfer-Encoding: chunked, chunked"), []int{bad}, false},
		"gzip, chunked":                   {post("Transfer-Encoding: gzip, chunked"), []int{bad}, false},
		"xchunked":                        {post("Transfer-Encoding: xchunked"), []int{bad}, false},
		"identity":                        {post("Transfer-Encoding: identity") + "abc", []int{bad}, false},
		"identity and Content-Length":     {post("Transfer-Encoding: identity", "Content-Length: 3") + "abc", []int{bad}, false},
		"chunked in HTTP/1.0":             {head("POST / HTTP/1.0", "Connection: keep-alive", "Transfer-Encoding: chunked"), []int{bad}, false},
		"chunk size overflows":            {chunks + "fffffffffffffffff\r\n", []int{ok}, false},
		"chunk size is negative":          {chunks + "-1\r\n", []int{ok}, false},
		"chunk size has a prefix":         {chunks + "0x3\r\nabc\r\n0\r\n\r\n", []int{ok}, false},
		"chunk size is empty":             {chunks + "\r\nabc\r\n0\r\n\r\n", []int{ok}, false},
		"chunk size lies":                 {chunks + "2\r\nabc\r\n0\r\n\r\n", []int{ok}, false},
		"chunk without its end":           {chunks + "3\r\nabc0\r\n\r\n", []int{ok}, false},
		"chunk extension of 8 KiB":        {chunks + "1;" + strings.Repeat("a", 8<<10) + "\r\na\r\n0\r\n\r\n", []int{ok}, false},
		"chunks of mostly extensions":     {chunks + strings.Repeat("1;"+strings.Repeat("a", 1000)+"\r\na\r\n", 100) + "0\r\n\r\n", []int{ok}, false},
		"trailer of 8 KiB":                {chunks + "0\r\nX: " + strings.Repeat("a", 8<<10) + "\r\n\r\n", []int{ok}, false},
		"trailer Content-Length":          {chunks + "0\r\nContent-Length: 3\r\n\r\n", []int{ok}, false},
		"chunked body of 1 MiB":           {chunks + "100000\r\n" + strings.Repeat("a", 1<<20) + "\r\n0\r\n\r\n", []int{ok}, false},
		"body of 200 KiB":                 {post("Content-Length: 204800") + strings.Repeat("a", 200<<10), []int{ok}, true},
		"body of 1 MiB":                   {post("Content-Length: 1048576") + strings.Repeat("a", 1<<20), []int{ok}, false},
		"Content-Length: 0":               {post("Content-Length: 0"), []int{ok}, true},
		"Content-Length: maximum":         {post("Content-Length: 9223372036854775807") + "abc", []int{ok}, false},
		"Content-Length overflows":        {post("Content-Length: 18446744073709551617") + "a", []int{bad}, false},
		"Content-Length twice":            {post("Content-Length: 3", "Content-Length: 3") + "abc", []int{bad}, false},
		"Content-Length twice, different": {post("Content-Length: 3", "Content-Length: 0") + "abc", []int{bad}, false},
		"Content-Length: 3, 3":            {post("Content-Length: 3, 3") + "abc", []int{bad}, false},
		"Content-Length: +3":              {post("Content-Length: +3") + "abc", []int{bad}, false},
		"Content-Length: -3":              {post("Content-Length: -3") + "abc", []int{bad}, false},
		"Content-Length: 0x3":             {post("Content-Length: 0x3") + "abc", []int{bad}, false},
		"Content-Length: 3a":              {post("Content-Length: 3a") + "abc", []int{bad}, false},
		"Content-Length empty":            {post("Content-Length:") + "abc", []int{bad}, false},
		"space before the colon":          {post("Content-Length : 3") + "abc", []int{bad}, false},
		"tab before the colon":            {post("Transfer-Encoding\t: chunked") + "0\r\n\r\n", []int{bad}, false},
		"space in a name":                 {post("Transfer Encoding: chunked") + "0\r\n\r\n", []int{bad}, false},
		"space before the first name":     {head("GET / HTTP/1.1", " Host: a"), []int{bad}, false},
		"folded line":                     {post("X: a", " Content-Length: 3") + "abc", []int{bad}, false},
		"folded Transfer-Encoding":        {post("Transfer-Encoding:", " chunked") + "0\r\n\r\n", []int{bad}, false},
		"NUL in a value":                  {post("X: a\x00b"), []int{bad}, false},
		"CR in a value":                   {post("X: a\rContent-Length: 3"), []int{bad}, false},
		"NUL in a name":                   {post("X\x00: a"), []int{bad}, false},
		"line without a colon":            {post("X"), []int{bad}, false},
		"line without a name":             {post(": a"), []int{bad}, false},
		"CR in the path":                  {head("GET /\r HTTP/1.1", "Host: a"), []int{bad}, false},
		"space in the path":               {head("GET /a b HTTP/1.1", "Host: a"), []int{bad}, false},
		"no path":                         {head("GET  HTTP/1.1", "Host: a"), []int{bad}, false},
		"path without a slash":            {head("GET a HTTP/1.1", "Host: a"), []int{bad}, false},
		"method with a separator":         {head("G(T / HTTP/1.1", "Host: a"), []int{bad}, false},
		"no Host":                         {head("GET / HTTP/1.1"), []int{bad}, false},
		"two Hosts":                       {head("GET / HTTP/1.1", "Host: a", "Host: a"), []int{bad}, false},
		"HTTP/0.9":                        {head("GET /"), []int{bad}, false},
		"HTTP/1.10":                       {head("GET / HTTP/1.10", "Host: a"), []int{bad}, false},
		"http/1.1":                        {head("GET / http/1.1", "Host: a"), []int{bad}, false},
		"HTTP/2.0":                        {head("GET / HTTP/2.0", "Host: a"), []int{http.StatusHTTPVersionNotSupported}, false},
		"HTTP/2 preface":                  {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00", []int{bad}, false},
		"TLS hello":                       {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", []int{bad}, false},
		"garbage":                         {"\x00\xff garbage\r\n\r\n", []int{bad}, false},
		"rejected after a valid request":  {get + post("Content-Length: x"), []int{ok, bad}, false},
		"head of 20 KiB":                  {post("X: "+strings.Repeat("a", 20<<10), "Content-Length: 3") + "abc", []int{ok}, true},
		"head of 20 KiB, pipelined":       {strings.Repeat(post("X: "+strings.Repeat("a", 20<<10)), 3), repeat(ok, 3), true},
		"head of 64 KiB":                  {post("X: " + strings.Repeat("a", 64<<10)), []int{http.StatusRequestHeaderFieldsTooLarge}, false},
		"path of 64 KiB":                  {head("GET /"+strings.Repeat("a", 64<<10)+" HTTP/1.1", "Host: a"), []int{http.StatusRequestHeaderFieldsTooLarge}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, address := start(t, hello(), 64)
			c := dial(t, address)
			c.send(test.send + get)
			want := test.want
			if test.open {
				want = append(want, ok)
			}
			for i, status := range want {
				response, text, err := c.response(http.MethodGet)
				switch {
				case err != nil:
					t.Fatalf("no response %d, want %d: %v", i+1, status, err)
				case response.StatusCode != status:
					t.Fatalf("response %d is %d, want %d", i+1, response.StatusCode, status)
				case status == ok && text != body:
					t.Fatalf("body of response %d is %q, want %q", i+1, text, body)
				case status != ok && !response.Close:
					t.Fatalf("response %d has no Connection: close, want it because the server rejects the request", i+1)
				}
			}
			if test.open {
				if err := c.get(); err != nil {
					t.Errorf("connection is not open: %v", err)
				}
				return
			}
			_, _ = io.WriteString(c, get)
			c.expectClosed(t, timeout)
		})
	}
}

func repeat(status, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = status
	}
	return list
}

func TestResponsesHaveNoBodyWhereHTTPForbidsIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		method       string
		status       int
		length, kind string
	}{
		{http.MethodGet, http.StatusOK, "6", "text/plain; charset=utf-8"},
		{http.MethodHead, http.StatusOK, "6", "text/plain; charset=utf-8"},
		{http.MethodGet, http.StatusServiceUnavailable, "6", "text/plain; charset=utf-8"},
		{http.MethodGet, http.StatusNoContent, "", ""},
		{http.MethodGet, http.StatusResetContent, "0", ""},
		{http.MethodGet, http.StatusNotModified, "", ""},
		{http.MethodHead, http.StatusNotModified, "", ""},
	} {
		t.Run(fmt.Sprint(test.method, test.status), func(t *testing.T) {
			t.Parallel()
			_, address := start(t, Response{Status: test.status, Body: []byte(body)}, 64)
			c := dial(t, address)
			c.send(test.method + " / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
			text, err := io.ReadAll(c)
			if err != nil {
				t.Fatal(err)
			}
			head, rest, _ := strings.Cut(string(text), "\r\n\r\n")
			hasBody := test.method == http.MethodGet && test.length == "6"
			if want := map[bool]string{true: body}[hasBody]; rest != want {
				t.Errorf("body is %q, want %q", rest, want)
			}
			response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(head+"\r\n\r\n")), &http.Request{Method: http.MethodHead})
			if err != nil {
				t.Fatal(err)
			}
			if got := response.Header.Get("Content-Length"); got != test.length {
				t.Errorf("Content-Length is %q, want %q", got, test.length)
			}
			if got := response.Header.Get("Content-Type"); got != test.kind {
				t.Errorf("Content-Type is %q, want %q", got, test.kind)
			}
			if _, err := http.ParseTime(response.Header.Get("Date")); err != nil {
				t.Errorf("Date: %v", err)
			}
		})
	}
}

func TestHTTP10ResponseSaysThatItKeepsTheConnection(t *testing.T) {
	t.Parallel()
	_, address := start(t, hello(), 64)
	c := dial(t, address)
	c.send("HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	if response, _, err := c.response(http.MethodHead); err != nil || response.Header.Get("Connection") != "keep-alive" {
		t.Errorf("response is %v, error %v, want Connection: keep-alive", response, err)
	}
	if err := c.get(); err != nil {
		t.Errorf("connection is not open: %v", err)
	}
}

// The tests of deadlines advance the clock of the server instead of waiting.
func TestSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		send  string
		phase int32
		// rest completes the request.
		rest string
	}{
		"silent":        {"", fresh, get},
		"idle":          {get, idle, get},
		"slow head":     {"GET / HTTP/1.1\r\nHost:", readingHead, " a\r\n\r\n"},
		"slow body":     {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", readingBody, "defghi" + get},
		"slow chunk":    {chunks + "9\r\nabc", readingBody, "defghi\r\n0\r\n\r\n" + get},
		"early, reads":  {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc", lingering, ""},
		"rejected head": {"GET / HTTP/1.1\r\n\r\n", lingering, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, address := start(t, hello(), 64)
			slow, patient := dial(t, address), dial(t, address)
			seconds := int64(limits[test.phase] / tick)
			for _, c := range []*client{slow, patient} {
				c.send(test.send)
				if test.phase != fresh && test.phase != readingHead {
					if _, _, err := c.response(http.MethodGet); err != nil {
						t.Fatal(err)
					}
				}
			}
			s.await(t, test.phase, 2)
			if test.rest != "" {
				s.now.Add(seconds - 3)
				patient.send(test.rest)
				if _, _, err := patient.response(http.MethodGet); err != nil {
					t.Errorf("no response to a request that takes less than %s: %v", limits[test.phase], err)
				}
				s.now.Add(3)
			} else {
				s.now.Add(seconds)
			}
			// A client that does not read sees that its peer is gone when it sends.
			s.awaitCount(t, map[bool]int{true: 1}[test.rest != ""])
			slow.expectClosed(t, timeout)
		})
	}
}

// await waits until n connections are in the phase.
func (s *Server) await(t *testing.T, phase int32, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d connections in phase %d", n, phase), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		in := 0
		for c := range s.connections {
			if c.phase.Load() == phase {
				in++
			}
		}
		return in == n
	})
}

func (s *Server) awaitCount(t *testing.T, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d connections", n), func() bool { return s.count() == n })
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", timeout, what)
		}
	}
}

func TestClientThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	response := hello()
	response.Body = []byte(strings.Repeat("a", 1<<20))
	s, address := start(t, response, 64)
	c := dial(t, address)
	c.send(strings.Repeat(get, 100))
	s.await(t, responding, 1)
	time.Sleep(3 * tick) // The server sees the queue.
	s.now.Add(int64(limits[responding]/tick) - 8)
	time.Sleep(2 * tick)
	if s.count() != 1 {
		t.Errorf("connection is closed before %s", limits[responding])
	}
	s.now.Add(8)
	s.awaitCount(t, 0)
}

// dialSmall connects with a small receive buffer, so that the server keeps what the client does not read.
func dialSmall(t *testing.T, address string) *client {
	t.Helper()
	dialer := net.Dialer{Timeout: timeout, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 2304) })
	}}
	conn, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(timeout)) // Reads and writes report what follows.
	return &client{conn.(*net.TCPConn), bufio.NewReader(conn)}
}

const getAndClose = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

// What the kernel holds for clients that do not read is bounded, and new clients get their turn.
func TestClientsThatDoNotReadAreBounded(t *testing.T) {
	t.Parallel()
	const bound = 200
	for _, test := range []struct {
		name, requests string
		size           int
		halfClose      bool
	}{
		{"kept, large", get, 48 << 10, false}, {"kept, fits into the kernel's buffer", get, 12 << 10, false},
		{"closed, large", getAndClose, 48 << 10, false}, {"closed, fits into the kernel's buffer", getAndClose, 12 << 10, false},
		{"half-closed", get, 12 << 10, true}, {"pipelined", strings.Repeat(get, 30), 400, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s, address := start(t, Response{Status: http.StatusOK, Body: bytes.Repeat([]byte("a"), test.size)}, bound)
			for range bound {
				c := dialSmall(t, address)
				_, _ = io.WriteString(c, test.requests) // The server may have disconnected it.
				if test.halfClose {
					_ = c.CloseWrite()
				}
			}
			// The connections beyond the readers have few bytes.
			limit := cap(s.readers)*min(len(test.requests)/len(get)*(test.size+200), unsentMemory) + bound*maxUnsent
			begin := time.Now()
			for time.Since(begin) < 8*tick {
				if queued := s.queued(); queued > limit {
					t.Fatalf("%d connections have %d unsent bytes, want at most %d", s.count(), queued, limit)
				}
				time.Sleep(tick / 10)
			}
			c := dial(t, address)
			c.send(get)
			if _, text, err := c.response(http.MethodGet); err != nil || len(text) != test.size {
				t.Errorf("response to a client that reads has %d bytes, error %v, want %d", len(text), err, test.size)
			}
			if since := time.Since(begin); since > 5*time.Second {
				t.Errorf("a client that reads waited for %s", since)
			}
		})
	}
}

// queued returns the number of unsent bytes of all connections.
func (s *Server) queued() (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connections {
		n, _ := c.queued() // The connection may have ended.
		sum += n
	}
	return sum
}

// A client that the server disconnects after its last response receives all of it, even if it reads late.
func TestClientsReceiveTheWholeResponse(t *testing.T) {
	t.Parallel()
	early := "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
	for name, last := range map[string]string{"closed": getAndClose, "half-closed": get, "early": early} {
		for n := range 10 { // The kernels of the client and of the server keep some of the responses.
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				t.Parallel()
				size := map[bool]int{false: 600, true: 64 << 10}[n == 0]
				_, address := start(t, Response{Status: http.StatusOK, Body: bytes.Repeat([]byte("a"), size)}, 64)
				c := dialSmall(t, address)
				_, _ = io.WriteString(c, strings.Repeat(get, n)+last) // The responses follow.
				_ = c.CloseWrite()
				time.Sleep(3 * tick)
				for i := range n + 1 {
					if _, text, err := c.response(http.MethodGet); err != nil || len(text) != size {
						t.Fatalf("response %d has %d bytes, error %v, want %d", i+1, len(text), err, size)
					}
				}
			})
		}
	}
}

func TestDefectEndsOneConnection(t *testing.T) {
	t.Parallel()
	s, address := start(t, hello(), 64)
	broken, other := dial(t, address), dial(t, address)
	messages := s.messages.Swap(nil)
	broken.send(get)
	broken.expectClosed(t, timeout)
	s.messages.Store(messages)
	if err := other.get(); err != nil {
		t.Errorf("no response on another connection: %v", err)
	}
	eventually(t, "the buffers are released", func() bool { return len(s.readers) == 0 })
	// The client may see the end of its connection before the server counts it.
	eventually(t, "one connection ended by a defect", func() bool { return s.counters.ended[failed].Load() == 1 })
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s, address := start(t, Response{Status: http.StatusServiceUnavailable, Body: []byte(body)}, 8)
	health := s.Health().start(t)
	c, rejected := dial(t, address), dial(t, address)
	for range 3 {
		c.send(get)
		if _, _, err := c.response(http.MethodGet); err != nil {
			t.Fatal(err)
		}
	}
	rejected.send("GET /\r\n\r\n")
	rejected.expectRejected(t)
	s.awaitCount(t, 1)
	if err := dial(t, health).getText("ok\n"); err != nil {
		t.Errorf("health: %v", err)
	}
	response, err := http.Get("http://" + health + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if problems, err := promlint.New(bytes.NewReader(text)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	for _, line := range []string{
		`echo_server_requests_total{code="503"} 3`, `echo_server_rejected_total{reason="malformed"} 1`,
		`echo_server_connections 1`, `echo_server_connections_max 8`, `echo_server_draining 0`,
		`echo_server_connections_closed_total{reason="rejected"} 1`,
	} {
		if !strings.Contains(string(text), line+"\n") {
			t.Errorf("metrics have no line %q:\n%s", line, text)
		}
	}
}

func TestIdleConnectionsAreProbed(t *testing.T) {
	t.Parallel()
	s, address := start(t, hello(), 8)
	dial(t, address)
	s.awaitCount(t, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.connections {
		var on, seconds int
		err := c.raw.Control(func(fd uintptr) {
			on, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
			seconds, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		})
		if err != nil || on != 1 || seconds > 120 {
			t.Errorf("error %v, keep-alive probes are %d after %d s, want 1 after at most 120 s", err, on, seconds)
		}
	}
}

// Clients that hold all buffers have less time, so that others get their turn.
func TestClientsThatHoldAllBuffersHaveLessTime(t *testing.T) {
	t.Parallel()
	s, address := start(t, hello(), 64)
	for range cap(s.readers) {
		dial(t, address).send("GET / HTTP/1.1\r\n")
	}
	eventually(t, "all buffers in use", func() bool { return len(s.readers) == cap(s.readers) })
	begin := time.Now()
	var others []*client
	for range cap(s.readers) {
		c := dial(t, address)
		c.send(get)
		others = append(others, c)
	}
	s.await(t, waiting, len(others))
	s.now.Add(int64(shortLimit / tick))
	for _, c := range others {
		if _, _, err := c.response(http.MethodGet); err != nil {
			t.Errorf("no response to a request that waited for a buffer: %v", err)
		}
	}
	if since := time.Since(begin); since > 6*tick {
		t.Errorf("response after %s, want it after the next tick", since)
	}
}

func TestLargeHeadsWait(t *testing.T) {
	t.Parallel()
	s, address := start(t, hello(), 1000)
	large := "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 20<<10)
	for range cap(s.largeHeads) {
		dial(t, address).send(large)
	}
	eventually(t, "all large buffers in use", func() bool { return len(s.largeHeads) == cap(s.largeHeads) })
	c := dial(t, address)
	c.send(large + "\r\n\r\n")
	s.await(t, waiting, 1)
	if err := dial(t, address).get(); err != nil {
		t.Errorf("no response to a small head: %v", err)
	}
	s.now.Add(int64(shortLimit / tick))
	if response, _, err := c.response(http.MethodGet); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("response to one more large head is %v, error %v, want 200", response, err)
	}
}

func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const bound = 8
	s, address := start(t, hello(), bound)
	var before []*client
	for i := range bound {
		c := dial(t, address)
		before = append(before, c)
		if i%2 == 0 { // The others have sent nothing yet.
			if err := c.get(); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.awaitCount(t, bound)
	s.now.Add(int64(idleAge / tick))
	begin := time.Now()
	for range bound / 2 {
		if err := dial(t, address).get(); err != nil {
			t.Errorf("no response to a new client: %v", err)
		}
	}
	if since := time.Since(begin); since > 5*tick {
		t.Errorf("new clients waited %s for old idle connections", since)
	}
	if n := s.count(); n > bound {
		t.Errorf("%d connections, want at most %d", n, bound)
	}
	open := 0
	for _, c := range before {
		if c.get() == nil {
			open++
		}
	}
	if open != bound/2 {
		t.Errorf("%d of the first connections are open, want the %d for which there is room", open, bound/2)
	}
}

func TestSilentConnectionsDoNotDisplaceBusyOnes(t *testing.T) {
	t.Parallel()
	const bound = 8
	s, address := start(t, hello(), bound)
	busy := dial(t, address)
	for range bound {
		dial(t, address) // One of them has to wait.
	}
	s.awaitCount(t, bound)
	for range 30 {
		busy.send(get)
		if response, _, err := busy.response(http.MethodGet); err != nil || response.Close {
			t.Fatalf("response to the busy client is %v, error %v, want one without Connection: close", response, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestBusyConnectionsRotateAndHealthResponds(t *testing.T) {
	t.Parallel()
	const bound, clients = 4, 12
	s, address := start(t, hello(), bound)
	_, health := start(t, hello(), bound)
	// Without a deadline: a dial reports that as an error a moment before the context is done.
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	time.AfterFunc(4*time.Second, stop)
	served := make([]int, clients)
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			for ctx.Err() == nil {
				reconnectingClient(ctx, address, func(_ *http.Response, err error) {
					if err != nil {
						t.Errorf("client %d: %v", i, err)
					}
					served[i]++
				})
			}
		})
	}
	for ctx.Err() == nil {
		begin, probe := time.Now(), dial(t, health)
		if err := probe.get(); err != nil || time.Since(begin) > shortLimit {
			t.Errorf("health responds after %s, error %v, want it within %s", time.Since(begin), err, shortLimit)
		}
		_ = probe.Close()
		if n := s.count(); n > bound {
			t.Errorf("%d connections, want at most %d", n, bound)
		}
		time.Sleep(50 * time.Millisecond)
	}
	group.Wait()
	for i, n := range served {
		if n == 0 {
			t.Errorf("client %d of %d got no response", i, clients)
		}
	}
}

func TestHealthRespondsBesideClientsThatHoldItsConnections(t *testing.T) {
	t.Parallel()
	for name, sent := range map[string]string{"silent clients": "", "unfinished requests": "GET / HTTP/1.1\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const clients = 400
			address := New(hello(), 1).Health().start(t)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			time.AfterFunc(4*time.Second, stop)
			for range clients {
				go func() {
					for ctx.Err() == nil { // It dials again when its connection is closed.
						conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
						if err != nil {
							return
						}
						_, _ = io.WriteString(conn, sent) // The server may have closed it.
						end := context.AfterFunc(ctx, func() { _ = conn.Close() })
						_, _ = io.Copy(io.Discard, conn)
						end()
						_ = conn.Close()
						time.Sleep(10 * time.Millisecond)
					}
				}()
			}
			for ctx.Err() == nil {
				time.Sleep(200 * time.Millisecond)
				begin, probe := time.Now(), dial(t, address)
				if err := probe.getText("ok\n"); err != nil || time.Since(begin) > shortLimit {
					t.Errorf("health responds after %s, error %v, want it within %s", time.Since(begin), err, shortLimit)
				}
				_ = probe.Close()
			}
		})
	}
}

// reconnectingClient sends requests over one connection until a response closes it, or until the context is done. A
// connection that the server has not accepted yet is no failure.
func reconnectingClient(ctx context.Context, address string, report func(*http.Response, error)) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		if ctx.Err() == nil {
			report(nil, err)
		}
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now().Add(timeout / 4)) })()
	c := client{conn.(*net.TCPConn), bufio.NewReader(conn)}
	for ctx.Err() == nil {
		c.send(get)
		response, _, err := c.response(http.MethodGet)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		report(response, err)
		if err != nil || response.Close {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func TestDrainLosesNoRequest(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, drain := context.WithCancel(t.Context())
	s, served, address := New(hello(), 64), make(chan struct{}), listener.Addr().String()
	go func() { s.Serve(ctx, listener); close(served) }()

	var draining sync.Map // the clients that have seen Connection: close
	clients, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for clients.Err() == nil {
				reconnectingClient(clients, address, func(response *http.Response, err error) {
					if err != nil {
						t.Errorf("client %d lost a request: %v", i, err)
					} else if response.Close {
						draining.Store(i, true)
					}
				})
			}
		})
	}
	idle := dial(t, address)
	if err := idle.get(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	begin := time.Now()
	drain()
	go func() { // Load balancers and the kubelet request the pod's address until it has stopped. That does not prolong the drain.
		for range time.Tick(500 * time.Millisecond) {
			response, err := http.Get("http://" + address)
			if err != nil {
				return
			}
			_ = response.Body.Close()
		}
	}()
	time.Sleep(3 * time.Second) // Until nodes and Gateways know that the endpoint is removed.
	if s.count() == 0 {
		t.Error("idle connection is closed early")
	}
	stop()
	group.Wait()
	late := dial(t, address)
	late.send(get)
	if response, _, err := late.response(http.MethodGet); err != nil || !response.Close {
		t.Errorf("response to a new connection is %v, error %v, want one with Connection: close", response, err)
	}
	for i := range 8 {
		if _, ok := draining.Load(i); !ok {
			t.Errorf("client %d got no Connection: close", i)
		}
	}
	select {
	case <-served:
	case <-time.After(drainMax):
		t.Fatal("Serve has not returned")
	}
	if since := time.Since(begin); since < drainMin || since > drainMin+drainQuiet+closeMax+5*tick {
		t.Errorf("Serve returns after %s, want %s to %s", since, drainMin, drainMin+drainQuiet+closeMax)
	}
	idle.expectClosed(t, time.Second)
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("server accepts a connection after the drain")
	}
}

func TestDrainWaitsForResponses(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(hello(), 64)
	go s.Serve(t.Context(), listener)
	c := dial(t, listener.Addr().String())
	c.send(get[:20])
	s.await(t, readingHead, 1)
	closed := make(chan struct{})
	go func() { s.close(listener); close(closed) }()
	time.Sleep(3 * rotation)
	c.send(get[20:])
	if _, _, err := c.response(http.MethodGet); err != nil {
		t.Errorf("no response to a request that began before the end: %v", err)
	}
	select {
	case <-closed:
	case <-time.After(closeMax):
		t.Errorf("close takes %s although every connection is idle", closeMax)
	}
}

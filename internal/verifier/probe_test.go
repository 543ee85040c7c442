package verifier

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const message = "hello\n"

// targetOf returns a target of the layer service at the address of a server.
func targetOf(t *testing.T, address string) *Target {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return &Target{
		Layer: Service, URL: at, Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, Timeout: 2 * time.Second,
		Status: http.StatusOK, Length: int64(len(message)), SHA256: sha256.Sum256([]byte(message)),
	}
}

// serve returns a target at a server that ends with the test.
func serve(t *testing.T, handler http.HandlerFunc) *Target {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return targetOf(t, server.URL)
}

// expectRound checks the result of one round.
func expectRound(t *testing.T, target *Target, want Result) {
	t.Helper()
	if got := target.Round(t.Context()); got != want {
		t.Errorf("result = %s, want %s", got, want)
	}
}

// hostile lists servers and the result of a round with each.
var hostile = []struct {
	name   string
	want   Result
	handle http.HandlerFunc
}{
	{"the right response", OK, write(message)},
	{"a body of the right length with wrong bytes", WrongBody, write("hallo\n")},
	{"a body that is too short", WrongBody, write("hell")},
	{"a body with one byte more", WrongBody, write(message + "!")},
	{"no body", WrongBody, write("")},
	{"the right body with a wrong status", WrongStatus, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		write(message)(w, r)
	}},
	{"a redirect to the right response", WrongStatus, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/other" {
			write(message)(w, r)
			return
		}
		http.Redirect(w, r, "/other", http.StatusFound)
	}},
	{"a body of 100 MB", WrongBody, func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}},
	{"the right response, compressed", WrongBody, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipped([]byte(message)))
	}},
	{"a compressed gigabyte", WrongBody, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(compressed)
	}},
	{"one byte a second", Timeout, func(w http.ResponseWriter, r *http.Request) {
		for i := range len(message) {
			_, _ = w.Write([]byte(message[i : i+1]))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Second):
			}
		}
	}},
	{"a header that is too large", Invalid, func(w http.ResponseWriter, r *http.Request) {
		for i := range 64 {
			w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 1<<10))
		}
		write(message)(w, r)
	}},
	{"a connection that is closed within the body", Invalid, raw("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhel")},
	{"a response that is not HTTP", Invalid, raw("SSH-2.0-OpenSSH_9.2\r\n")},
	{"endless headers", Invalid, func(w http.ResponseWriter, _ *http.Request) {
		connection := hijack(w)
		defer connection.Close()
		_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\n")
		for i := 0; ; i++ {
			if _, err := fmt.Fprintf(connection, "X-%d: %s\r\n", i, strings.Repeat("x", 1<<10)); err != nil {
				return
			}
		}
	}},
	{"endless interim responses", Invalid, func(w http.ResponseWriter, _ *http.Request) {
		connection := hijack(w)
		defer connection.Close()
		for {
			if _, err := io.WriteString(connection, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
				return
			}
		}
	}},
	{"no response", Timeout, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
}

// compressed is made before the rounds start: the compression takes longer than their timeout on a busy machine.
var compressed = gzipped(make([]byte, 16<<20))

func TestRound(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			target, start := serve(t, c.handle), time.Now()
			expectRound(t, target, c.want)
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("a round with a timeout of 2 s took %s", took)
			}
		})
	}
}

func TestRoundTimeoutIncludesTheLookUpAndTheConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if got := targetOf(t, "http://"+listener.Addr().String()).Round(t.Context()); got != Timeout {
		t.Errorf("result for a server that accepts no connection = %s, want %s", got, Timeout)
	}
	_ = listener.Close()
	if got := targetOf(t, "http://"+listener.Addr().String()).Round(t.Context()); got != ConnectFailed {
		t.Errorf("result for a closed port = %s, want %s", got, ConnectFailed)
	}
}

func TestRoundOpensAConnectionForEachAddress(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(write(message))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	target := targetOf(t, server.URL)
	target.Addresses = append(target.Addresses, target.Addresses[0])
	for range 3 {
		if got := target.Round(t.Context()); got != OK {
			t.Fatalf("result = %s, want %s", got, OK)
		}
	}
	if got := connections.Load(); got != 6 {
		t.Errorf("3 rounds of 2 addresses opened %d connections, want 6", got)
	}
}

func TestRoundUsesTheHostOfTheURLAndNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	target := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Host, "echo-hello.default.svc:") || r.Header.Get("Accept-Encoding") != "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		write(message)(w, r)
	})
	target.URL.Host = "echo-hello.default.svc:" + target.URL.Port()
	expectRound(t, target, OK)
}

func TestRoundOfAServerOfTheUsersOwn(t *testing.T) {
	for status, want := range map[int]Result{200: OK, 204: OK, 299: OK, 300: WrongStatus, 404: WrongStatus, 500: WrongStatus} {
		target := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		target.Status = 0
		if got := target.Round(t.Context()); got != want {
			t.Errorf("status %d: result = %s, want %s", status, got, want)
		}
	}
}

func TestRoundOfARoute(t *testing.T) {
	server := httptest.NewServer(write(message))
	defer server.Close()
	target := targetOf(t, server.URL)
	target.Layer, target.Addresses = Route, nil
	target.URL.Host = "localhost:" + target.URL.Port()
	expectRound(t, target, OK)
	secure := httptest.NewTLSServer(write(message))
	defer secure.Close()
	target = targetOf(t, secure.URL)
	target.Layer, target.Addresses = Route, nil
	if got := target.Round(t.Context()); got != TLSFailed {
		t.Errorf("result with an unknown certificate = %s, want %s", got, TLSFailed)
	}
	target.URL.Scheme, target.URL.Host = "https", "127.0.0.1:"+targetOf(t, server.URL).URL.Port()
	if got := target.Round(t.Context()); got != TLSFailed {
		t.Errorf("result of https at a port that serves http = %s, want %s", got, TLSFailed)
	}
}

func TestRoundOfDNS(t *testing.T) {
	for _, c := range []struct {
		name      string
		addresses []string
		want      Result
	}{
		{"the cluster IPs", []string{"127.0.0.1"}, OK},
		{"another address", []string{"127.0.0.2"}, WrongAddress},
		{"an address that is missing", []string{"127.0.0.1", "127.0.0.2"}, WrongAddress},
	} {
		target := targetOf(t, "http://127.0.0.1")
		target.Layer, target.Addresses = DNS, nil
		for _, address := range c.addresses {
			target.Addresses = append(target.Addresses, netip.MustParseAddr(address))
		}
		if got := target.Round(t.Context()); got != c.want {
			t.Errorf("%s: result = %s, want %s", c.name, got, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	target := targetOf(t, "http://absent.invalid")
	target.Layer = DNS
	if got := target.Round(ctx); got == OK {
		t.Error("a name that does not resolve is OK")
	}
}

func write(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

func raw(response string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		connection := hijack(w)
		_, _ = io.WriteString(connection, response)
		_ = connection.Close()
	}
}

func hijack(w http.ResponseWriter) net.Conn {
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	return connection
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	writer := gzip.NewWriter(&b)
	_, _ = writer.Write(data)
	_ = writer.Close()
	return b.Bytes()
}

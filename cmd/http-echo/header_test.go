package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	"github.com/kkloud-io/echo-operator/internal/server"
)

// A value with a line break would add a header line, or a second response.
func TestHeaderThatSplitsTheResponseIsRejected(t *testing.T) {
	for _, header := range []string{
		"X-A: b\r\nSet-Cookie: c=d", "X-A: b\nSet-Cookie: c=d", "X-A: b\rSet-Cookie: c=d", "X-A: b\x00c", "X-A: b\r\n\r\nHTTP/1.1 200 OK",
		"X-A: b\r\n", "X-A: b\n", "X-A: b\x00", "X-A: \r\nb", "X-A: \x7f",
		"X-A\r\nX-B: c", "X-A\n: b", "\r\nX-A: b", "X-A\x00: b", "X A: b", "X-A : b", ": b", "X-A",
	} {
		if s, err := parse([]string{"-text=m", "-header=" + header}); err == nil {
			t.Errorf("-header=%q is accepted, want an error; response: %+v", header, s.response)
		}
	}
}

func TestHeadersThatDescribeTheMessageAreRejected(t *testing.T) {
	for _, name := range []string{"Connection", "content-length", "DATE", "Keep-Alive", "Trailer", "Transfer-Encoding", "Upgrade"} {
		if _, err := parse([]string{"-text=m", "-header=" + name + ": 0"}); err == nil {
			t.Errorf("-header=%s is accepted, want an error", name)
		}
	}
	if _, err := parse([]string{"-text=m", "-header=X-A: b", "-header=x-a: c"}); err == nil {
		t.Error("a repeated -header is accepted, want an error")
	}
}

func TestResponseHasTheDeclaredHeaders(t *testing.T) {
	const html = "text/html; charset=utf-8"
	s, err := parse([]string{"-text=m", "-status-code=308", "-header=Location: https://a.example/?b=c: d", "-header=content-type: " + html})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.New(s.response, 8).Serve(t.Context(), listener)
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(connection)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw)), nil)
	if err != nil {
		t.Fatalf("%v: %q", err, raw)
	}
	defer response.Body.Close()
	for name, want := range map[string][]string{"Location": {"https://a.example/?b=c: d"}, "Content-Type": {html}} {
		if got := response.Header.Values(name); response.StatusCode != http.StatusPermanentRedirect || !slices.Equal(got, want) {
			t.Errorf("status %d, %s = %q, want 308 and %q", response.StatusCode, name, got, want)
		}
	}
}

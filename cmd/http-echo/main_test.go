package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// output is written and read by different goroutines.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// freeAddress is an address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestServerRespondsUntilClientsAreGone(t *testing.T) {
	t.Parallel()
	address, health := freeAddress(t), freeAddress(t)
	ctx, stop := context.WithCancel(t.Context())
	var out output
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{
			"-listen", address, "-text=a\nb", "-status-code", "503", "-header", "Retry-After: 3", "-header", "X: y", "-health-listen", health,
		}, &out)
	}()
	request := func(address string) (string, error) {
		response, err := http.Get("http://" + address + "/health") //nolint:noctx // The server is in this process.
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return fmt.Sprint(response.StatusCode, response.Header.Get("Retry-After"), response.Header.Get("X"), string(body)), err
	}
	expect := func(address, want string) {
		t.Helper()
		var got string
		var err error
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			if got, err = request(address); err == nil {
				break
			}
		}
		if err != nil || got != want {
			t.Errorf("response is %q, error %v, want %q", got, err, want)
		}
	}
	expect(address, "5033ya\nb\n")
	expect(health, "200ok\n")
	stop()
	time.Sleep(2 * time.Second)
	expect(address, "5033ya\nb\n")
	expect(health, "200ok\n")
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("run returns %v, want nothing", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("run has not returned")
	}
	if want := "http-echo listens on " + address + "\n"; out.String() != want {
		t.Errorf("output is %q, want %q: no line for each request", out.String(), want)
	}
}

func TestErrorsNameTheFlag(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	used := listener.Addr().String()
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "-text"},
		{[]string{"-text="}, "ECHO_TEXT"},
		{[]string{"-text=a", "b"}, `"b"`},
		{[]string{"-text=a", "-status-code=199"}, "-status-code is 199, want 200 to 599"},
		{[]string{"-text=a", "-status-code=600"}, "-status-code is 600, want 200 to 599"},
		{[]string{"-text=a", "-status-code=ok"}, "-status-code"},
		{[]string{"-text=a", "-header=X"}, "-header"},
		{[]string{"-text=a", "-header=X: a\r\nY: b"}, "-header"},
		{[]string{"-text=a", "-header=Date: b"}, "-header"},
		{[]string{"-text=a", "-listen=5678"}, "-listen"},
		{[]string{"-text=a", "-listen=" + used}, "-listen"},
		{[]string{"-text=a", "-listen=127.0.0.1:0", "-health-listen=" + used}, "-health-listen"},
		{[]string{"-text=a", "-port=1"}, "-port"},
	} {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		err := run(ctx, test.args, io.Discard)
		stop()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("run(%q) = %v, want an error with %q", test.args, err, test.want)
		}
	}
}

func TestVersionIsPrintedWithoutText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-version"}, &out); err != nil || out.String() != version+"\n" {
		t.Errorf("run prints %q, error %v, want %q", out.String(), err, version)
	}
}

// The test sets the environment, so it does not run in parallel.
func TestTextIsThatOfTheFlagOrOfTheEnvironment(t *testing.T) {
	t.Setenv("ECHO_TEXT", "environment")
	for want, args := range map[string][]string{
		"environment\n": {"-text="},
		"flag\n":        {"-text", "flag"},
	} {
		if s, err := parse(args); err != nil || string(s.response.Body) != want {
			t.Errorf("body with %q is %q, error %v, want %q", args, s.response.Body, err, want)
		}
	}
}

func TestDefaultsAreThoseOfTheOriginal(t *testing.T) {
	t.Parallel()
	if s, err := parse([]string{"-text=a"}); err != nil || s.listen != ":5678" || s.health != "" || s.response.Status != http.StatusOK {
		t.Errorf("settings are %+v, error %v, want :5678 and 200", s, err)
	}
}

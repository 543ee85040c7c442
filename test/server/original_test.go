// Package server compares cmd/http-echo with the program that it replaces: hashicorp/http-echo 1.0.0.
package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const root = "../.."

// program is a running server.
type program struct {
	command *exec.Cmd
	address string
	output  bytes.Buffer // complete after stop
}

// programs builds this server, and returns the paths of both programs.
func programs(t *testing.T) (ours, original string) {
	t.Helper()
	original, err := filepath.Abs(filepath.Join(root, "bin", "http-echo"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(original); err != nil {
		t.Fatalf("%v: run make bin/http-echo", err)
	}
	ours = filepath.Join(t.TempDir(), "http-echo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", ours, "./cmd/http-echo")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	return ours, original
}

// start starts a program on a free port, and waits until it listens.
func start(t *testing.T, path string, environment []string, args ...string) *program {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{address: listener.Addr().String()}
	_ = listener.Close()
	p.command = exec.Command(path, append([]string{"-listen", p.address}, args...)...)
	p.command.Env = append(os.Environ(), environment...)
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.command.Process.Kill() })
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", p.address); err == nil {
			_ = conn.Close()
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not listen within 10 s", path)
		}
	}
}

// exitCode sends the signal, and waits for the end of the program.
func (p *program) exitCode(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := p.command.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.command.ProcessState.ExitCode()
}

// request returns status code, body and header of a response.
func (p *program) request(t *testing.T, method, path string) (int, string, http.Header) {
	t.Helper()
	request := &http.Request{Method: method, URL: &url.URL{Scheme: "http", Host: p.address, Path: path}, Header: http.Header{}}
	if method != http.MethodGet && method != http.MethodHead {
		request.Body = io.NopCloser(strings.NewReader(strings.Repeat("a", 1000)))
	}
	response, err := http.DefaultTransport.RoundTrip(request) // It follows no redirect.
	if err != nil {
		t.Fatalf("%s %s of %s: %v", method, path, p.command.Path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s of %s: %v", method, path, p.command.Path, err)
	}
	return response.StatusCode, string(body), response.Header
}

// differences are the headers that differ: the original names itself, and sends a body of more than 2 KiB in chunks.
var differences = []string{"Date", "X-App-Name", "X-App-Version", "Content-Length"}

func withoutDifferences(header http.Header) http.Header {
	header = maps.Clone(header)
	for _, name := range differences {
		header.Del(name)
	}
	return header
}

func TestResponsesAreThoseOfTheOriginal(t *testing.T) {
	t.Parallel()
	ours, original := programs(t)
	for _, test := range []struct {
		environment []string
		args        []string
	}{
		{nil, []string{"-text=hello"}},
		{nil, []string{"-text=größer\n\nund mehr\n"}},
		{nil, []string{"-text=" + strings.Repeat("long ", 10_000)}},
		{[]string{"ECHO_TEXT=environment"}, nil},
		{[]string{"ECHO_TEXT=environment"}, []string{"-text="}},
		{[]string{"ECHO_TEXT=environment"}, []string{"--text", "flag"}},
		{nil, []string{"-text=no content", "-status-code=204"}},
		{nil, []string{"-text=not modified", "-status-code=304"}},
		{nil, []string{"-text=moved", "-status-code=302"}},
		{nil, []string{"-text=not found", "-status-code", "404"}},
		{nil, []string{"-text=maintenance", "-status-code=503"}},
		{nil, []string{"-text=no name", "-status-code=599"}},
	} {
		t.Run(fmt.Sprintf("%.30q", append(test.environment, test.args...)), func(t *testing.T) {
			t.Parallel()
			a, b := start(t, ours, test.environment, test.args...), start(t, original, test.environment, test.args...)
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"} {
				for _, path := range []string{"/", "/a/b", "/healthz", "/ü", "/favicon.ico"} {
					status, body, header := a.request(t, method, path)
					wantStatus, wantBody, wantHeader := b.request(t, method, path)
					if status != wantStatus || body != wantBody {
						t.Errorf("%s %s: response is %d %.40q, want %d %.40q", method, path, status, body, wantStatus, wantBody)
					}
					if len(wantHeader["Date"]) != len(header["Date"]) {
						t.Errorf("%s %s: Date is %q, want %q", method, path, header["Date"], wantHeader["Date"])
					}
					if want := wantHeader["Content-Length"]; len(want) > 0 && !slices.Equal(header["Content-Length"], want) {
						t.Errorf("%s %s: Content-Length is %q, want %q", method, path, header["Content-Length"], want)
					}
					if got, want := withoutDifferences(header), withoutDifferences(wantHeader); !maps.EqualFunc(got, want, slices.Equal) {
						t.Errorf("%s %s: header is %v, want %v", method, path, got, want)
					}
				}
			}
		})
	}
}

// Each difference is deliberate.
func TestDifferencesFromTheOriginalAreDeliberate(t *testing.T) {
	t.Parallel()
	ours, original := programs(t)
	const page = "-text=<!DOCTYPE html><p>hello</p>"
	a, b := start(t, ours, nil, page, "-header=Content-Type: text/html"), start(t, original, nil, page)
	expect := func(p *program, path string, wantStatus int, wantBody string) http.Header {
		t.Helper()
		status, body, header := p.request(t, http.MethodGet, path)
		if status != wantStatus || body != wantBody {
			t.Errorf("GET %s of %s: response is %d %q, want %d %q", path, p.command.Path, status, body, wantStatus, wantBody)
		}
		return header
	}
	body := strings.TrimPrefix(page, "-text=") + "\n"
	expect(a, "/health", http.StatusOK, body)
	expect(b, "/health", http.StatusOK, "{\"status\":\"ok\"}\n")
	expect(a, "//", http.StatusOK, body)
	expect(b, "//", http.StatusTemporaryRedirect, "<a href=\"/\">Temporary Redirect</a>.\n\n")
	expect(a, "/x/../y", http.StatusOK, body)
	expect(b, "/x/../y", http.StatusTemporaryRedirect, "<a href=\"/y\">Temporary Redirect</a>.\n\n")
	if got := expect(a, "/", http.StatusOK, body); got.Get("Content-Type") != "text/html" || got.Get("X-App-Name") != "" {
		t.Errorf("header is %v, want Content-Type as declared, and no X-App-Name", got)
	}
	if got := expect(b, "/", http.StatusOK, body); got.Get("Content-Type") != "text/html; charset=utf-8" || got.Get("X-App-Name") == "" {
		t.Errorf("header of the original is %v, want a detected Content-Type, and X-App-Name", got)
	}
	undeclared := start(t, ours, nil, page)
	if got := expect(undeclared, "/", http.StatusOK, body).Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type without a declaration is %q, want plain text", got)
	}
	noContent := []string{"-text=hello", "-status-code=205"} // RFC 9110 forbids content.
	expect(start(t, ours, nil, noContent...), "/", http.StatusResetContent, "")
	expect(start(t, original, nil, noContent...), "/", http.StatusResetContent, "hello\n")

	for p, want := range map[*program]struct{ code, requests int }{a: {0, 0}, b: {2, 1}} {
		if code := p.exitCode(t, syscall.SIGTERM); code != want.code {
			t.Errorf("exit code of %s after SIGTERM is %d, want %d", p.command.Path, code, want.code)
		}
		if n := strings.Count(p.output.String(), "GET /"); n != want.requests {
			t.Errorf("output of %s has %d lines for requests, want %d:\n%s", p.command.Path, n, want.requests, p.output.String())
		}
	}
}

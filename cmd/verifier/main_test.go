package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	valid := map[string]string{
		"layer": "service", "url": "http://echo-hello.default.svc", "cluster-ips": "10.0.0.1,fd00::1", "sha256": strings.Repeat("ab", sha256.Size), "length": "6",
	}
	s, err := parse(append(arguments(valid, "", ""), "-header=location: https://a.example/?b=c: d", "-header=X-$: $(HOME)"))
	if err != nil || len(s.target.Addresses) != 2 || s.target.Status != 200 || s.target.SHA256[31] != 0xab {
		t.Errorf("parse = %+v, %v", s, err)
	}
	if want := map[string]string{"Location": "https://a.example/?b=c: d", "X-$": "$(HOME)"}; !maps.Equal(s.target.Header, want) {
		t.Errorf("headers = %q, want %q", s.target.Header, want)
	}
	for _, c := range []struct{ flag, value, want string }{
		{"layer", "ping", "want dns, service or route"},
		{"url", ":", "flag -url"},
		{"cluster-ips", "", "flag -cluster-ips"},
		{"cluster-ips", "10.0.0.1,x", "flag -cluster-ips"},
		{"sha256", "ab", "want 64 hexadecimal digits"},
		{"sha256", strings.Repeat("ab", 33), "want 64 hexadecimal digits"},
		{"sha256", strings.Repeat("x", 64), "want 64 hexadecimal digits"},
		{"period", "often", "invalid value"},
	} {
		if _, err := parse(arguments(valid, c.flag, c.value)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("-%s=%s: error = %v, want %q", c.flag, c.value, err, c.want)
		}
	}
	for _, args := range [][]string{{}, {"-layer=dns", "-url=http://h"}, {"-layer=route"}, {"-url=http://h", "-cluster-ips=::1"}, {"-layer=route", "-url=http://h", "more"}} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), "want the flags") {
			t.Errorf("%q: error = %v", args, err)
		}
	}
}

func arguments(valid map[string]string, flag, value string) (all []string) {
	for name, v := range valid {
		if name != flag {
			all = append(all, "-"+name+"="+v)
		}
	}
	if flag != "" {
		all = append(all, "-"+flag+"="+value)
	}
	return all
}

// maxMemory is the limit of the resident memory of a verifier of a hostile server.
const maxMemory = 20 << 20

// buildVerifier returns the path of the program.
func buildVerifier(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "verifier")
	if output, err := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return program
}

// startVerifier starts the program with variables of its environment. It returns the address of its
// probes.
func startVerifier(t *testing.T, program string, variables []string, args ...string) (command *exec.Cmd, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = "http://" + listener.Addr().String()
	_ = listener.Close()

	digest := sha256.Sum256([]byte("hello\n"))
	command = exec.CommandContext(t.Context(), program, append(args, "-length=6", "-sha256="+hex.EncodeToString(digest[:]),
		"-period=1ms", "-listen="+listener.Addr().String())...)
	command.Env, command.Stderr = append(os.Environ(), variables...), io.Discard
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return command, address
}

func stopVerifier(t *testing.T, command *exec.Cmd) {
	t.Helper()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("exit after SIGTERM: %v, want 0", err)
	}
}

func TestVerifierOfAHostileServerWithHostileClients(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Large", strings.Repeat("x", 10<<10))
		for range 100 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	command, address := startVerifier(t, buildVerifier(t), nil, "-layer=service", "-url="+server.URL, "-cluster-ips=127.0.0.1")
	await(t, address+"/startz", http.StatusOK)
	await(t, address+"/readyz", http.StatusServiceUnavailable)
	for range 2000 { // Clients that keep their connections.
		conn, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /startz HTTP/1.1\r\nHost: a\r\n\r\n") // The verifier may have closed it.
	}
	await(t, address+"/readyz", http.StatusServiceUnavailable)
	time.Sleep(3 * time.Second) // Some thousand rounds.
	if memory := residentMemory(t, command.Process.Pid); memory > maxMemory {
		t.Errorf("resident memory = %d bytes, want at most %d", memory, maxMemory)
	}
	stopVerifier(t, command)
}

// The certificate authority of a Gateway may be private.
func TestVerifierTrustsTheAuthoritiesOfItsEnvironment(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello\n")
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	program := buildVerifier(t)
	for variable, want := range map[string]int{"SSL_CERT_FILE=": http.StatusServiceUnavailable, "SSL_CERT_FILE=" + file: http.StatusOK} {
		command, address := startVerifier(t, program, []string{variable}, "-layer=route", "-url="+server.URL)
		await(t, address+"/startz", http.StatusOK)
		await(t, address+"/readyz", want)
		stopVerifier(t, command)
	}
}

func await(t *testing.T, url string, want int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got := 0
		if response, err := http.Get(url); err == nil {
			got = response.StatusCode
			_ = response.Body.Close()
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s = %d after 20s, want %d", url, got, want)
		}
	}
}

// residentMemory returns the highest resident memory of a process, in bytes.
func residentMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	kilobytes, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(status))[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("highest resident memory: %d KiB", kilobytes)
	return kilobytes << 10
}

func TestRunReportsWhatPreventsIt(t *testing.T) {
	if err := run(context.Background(), []string{"-layer=x"}); err == nil {
		t.Error("run with an invalid flag returns no error")
	}
	digest := strings.Repeat("ab", sha256.Size)
	err := run(context.Background(), []string{"-layer=service", "-url=http://h", "-cluster-ips=127.0.0.1", "-sha256=" + digest, "-listen=256.0.0.1:1"})
	if err == nil || !strings.Contains(err.Error(), "listen") {
		t.Errorf("run with an invalid address = %v, want an error of listen", err)
	}
}

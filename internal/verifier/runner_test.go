package verifier

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRunner(t *testing.T) {
	var wrong atomic.Bool
	const secret = "bytes of the response"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if wrong.Load() {
			w.Header().Set("X-Secret", secret)
			write(secret)(w, r)
			return
		}
		write(message)(w, r)
	}))
	defer server.Close()
	var log buffer
	runner := NewRunner(targetOf(t, server.URL), 20*time.Millisecond, 3, slog.New(slog.NewJSONHandler(&log, nil)))
	handler := runner.Handler()
	expect := func(path string, want int) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			response := httptest.NewRecorder()
			handler.ServeHTTP(response, httptest.NewRequest(http.MethodGet, path, nil))
			if response.Code == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s = %d after 5s, want %d", path, response.Code, want)
			}
		}
	}
	expect("/startz", http.StatusServiceUnavailable)
	expect("/readyz", http.StatusServiceUnavailable)

	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { runner.Run(ctx) })
	expect("/startz", http.StatusOK)
	expect("/readyz", http.StatusOK)
	wrong.Store(true)
	expect("/readyz", http.StatusServiceUnavailable)
	expect("/startz", http.StatusOK)
	wrong.Store(false)
	expect("/readyz", http.StatusOK)
	cancel()
	running.Wait()

	for _, text := range []string{`"msg":"verified the response"`, `"msg":"could not verify the response"`, `"layer":"service"`, `"result":"wrong_body"`} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("the log has no %s:\n%s", text, log.String())
		}
	}
	if strings.Contains(log.String(), secret) {
		t.Errorf("the log has bytes of a response:\n%s", log.String())
	}
	if got := testutil.ToFloat64(runner.requests.WithLabelValues(string(OK))); got < 2 {
		t.Errorf("echo_verify_rounds_total{result=%q} = %v, want 2 at least", OK, got)
	}
	if age := float64(time.Now().Unix()) - testutil.ToFloat64(runner.lastSuccess); age > 60 {
		t.Errorf("echo_verify_last_success_timestamp_seconds is %v seconds ago, want now", age)
	}
	problems, err := testutil.GatherAndLint(runner.registry)
	if err != nil || len(problems) > 0 {
		t.Errorf("promlint: %v, %v", problems, err)
	}
	expect("/metrics", http.StatusOK)
}

// A round that the end of the verifier interrupts is no failed round.
func TestRunnerDoesNotCountAnInterruptedRound(t *testing.T) {
	started := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done()
	}))
	defer server.Close()
	runner := NewRunner(targetOf(t, server.URL), time.Hour, 1, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-started
		cancel()
	}()
	runner.Run(ctx)
	if got := testutil.CollectAndCount(runner.registry, "echo_verify_rounds_total"); got != len(Results) {
		t.Errorf("series = %d, want %d", got, len(Results))
	}
	for _, result := range Results {
		if got := testutil.ToFloat64(runner.requests.WithLabelValues(string(result))); got != 0 {
			t.Errorf("echo_verify_rounds_total{result=%q} = %v, want 0", result, got)
		}
	}
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mutex sync.Mutex
	data  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.data.Write(p)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.data.String()
}

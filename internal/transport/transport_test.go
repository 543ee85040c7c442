package transport

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

var errUnavailable = errors.New("connection refused")

// unavailableFor simulates an API server that starts to respond after the given time.
func unavailableFor(d time.Duration, attempts *int) http.RoundTripper {
	start := time.Now()
	return roundTrip(func(*http.Request) (*http.Response, error) {
		*attempts++
		if time.Since(start) < d {
			return nil, errUnavailable
		}
		return &http.Response{StatusCode: http.StatusOK}, nil
	})
}

func TestWatchRetrierReturnsAWatchWithinTwoSecondsOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, attempts := time.Now(), 0
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/api?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := watchRetrier{unavailableFor(time.Hour, &attempts)}.RoundTrip(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("response = %v, %v, want status 200", response, err)
		}
		if took := time.Since(start); took > time.Hour+2*watchRetryDelay || attempts > 3601 {
			t.Errorf("the watch took %s and %d requests, want at most %s and 3601", took, attempts, time.Hour+2*watchRetryDelay)
		}
	})
}

// A leader that cannot renew its lease has to get the error immediately.
func TestWatchRetrierReturnsTheErrorWhenAWatchIsCanceledAndImmediatelyForOtherRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for path, limit := range map[string]time.Duration{"/echoes?watch=true": 4 * time.Second, "/leases/lease": 0} {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			start, attempts := time.Now(), 0
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := (watchRetrier{unavailableFor(time.Hour, &attempts)}).RoundTrip(request); !errors.Is(err, errUnavailable) {
				t.Errorf("%s: error = %v, want %v", path, err, errUnavailable)
			}
			if took := time.Since(start); took > limit {
				t.Errorf("%s: the error came after %s, want at most %s", path, took, limit)
			}
		}
	})
}

func TestPromptWritesKeepsRetryAfterOnlyForReadsAndFromAnOverloadedAPIServer(t *testing.T) {
	const (
		text     = "text/plain; charset=utf-8"
		status   = "application/json"
		protobuf = "application/vnd.kubernetes.protobuf"
	)
	for _, test := range []struct {
		method, contentType string
		code                int
		want                string
	}{
		{http.MethodPost, status, http.StatusTooManyRequests, ""},
		{http.MethodPut, protobuf, http.StatusTooManyRequests, ""},
		{http.MethodPatch, status, http.StatusServiceUnavailable, ""},
		{http.MethodDelete, text, http.StatusServiceUnavailable, ""},
		{http.MethodGet, status, http.StatusTooManyRequests, "20"},
		{http.MethodPost, text, http.StatusTooManyRequests, "20"},
		{http.MethodPatch, text, http.StatusTooManyRequests, "20"},
	} {
		server := roundTrip(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Retry-After": {"20"}, "Content-Type": {test.contentType}}
			return &http.Response{StatusCode: test.code, Header: header}, nil
		})
		request, err := http.NewRequestWithContext(t.Context(), test.method, "https://server/echoes", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := promptWrites{server}.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Retry-After"); got != test.want {
			t.Errorf("%s, response %d of type %s: Retry-After = %q, want %q", test.method, test.code, test.contentType, got, test.want)
		}
	}
}

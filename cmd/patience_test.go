package main

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

var errAway = errors.New("connection refused")

// awayFor is an API server that comes after some time.
func awayFor(d time.Duration, tries *int) http.RoundTripper {
	start := time.Now()
	return roundTrip(func(*http.Request) (*http.Response, error) {
		*tries++
		if time.Since(start) < d {
			return nil, errAway
		}
		return &http.Response{StatusCode: http.StatusOK}, nil
	})
}

// TestPatientWatches: a watch is answered within two seconds of the API server's return, however
// long that was away, without a storm of requests.
func TestPatientWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://server/api?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := patientWatches{awayFor(time.Hour, &tries)}.RoundTrip(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("got %v, %v", response, err)
		}
		if took := time.Since(start); took > time.Hour+2*patience || tries > 3601 {
			t.Errorf("after %s and %d requests", took, tries)
		}
	})
}

// TestImpatience: who has no time gets the error in time; and who does not watch at once, as a
// leader that cannot renew its lease.
func TestImpatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for path, most := range map[string]time.Duration{"/echoes?watch=true": 4 * time.Second, "/leases/lease": 0} {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			start, tries := time.Now(), 0
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://server"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := (patientWatches{awayFor(time.Hour, &tries)}).RoundTrip(request); !errors.Is(err, errAway) {
				t.Errorf("%s: got %v", path, err)
			}
			if took := time.Since(start); took > most {
				t.Errorf("%s: after %s", path, took)
			}
		}
	})
}

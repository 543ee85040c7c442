package main

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
)

// patience is how long a watch waits before it is asked for again; up to twice as long, so
// that not everybody comes at once.
const patience = time.Second

// patientWatches asks again where a watch found no API server, for as long as whoever asks has
// time. Left to itself, it would be away for up to a minute after the server's return. Others
// have plans for that case: who leads has to stop.
type patientWatches struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p patientWatches) RoundTrip(request *http.Request) (*http.Response, error) {
	for hasSaidSo := false; ; hasSaidSo = true {
		response, err := p.next.RoundTrip(request)
		if err == nil || request.URL.Query().Get("watch") != "true" {
			return response, err
		}
		if !hasSaidSo {
			ctrl.Log.Info("The API server does not answer; waiting", "path", request.URL.Path, "reason", err.Error())
		}
		select {
		case <-request.Context().Done():
			return nil, err
		case <-time.After(wait.Jitter(patience, 1)):
		}
	}
}

package transport

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
)

// watchRetryDelay is the minimum delay before a failed watch request is sent again. Jitter
// doubles it at most, so that the watches do not all return at the same moment.
const watchRetryDelay = time.Second

// watchRetrier repeats a watch request that cannot reach the API server until the context of the
// request ends. The back-off of client-go would delay the watch by up to a minute after the API
// server is available again. Other requests fail immediately: a leader that cannot renew its
// lease has to stop.
type watchRetrier struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w watchRetrier) RoundTrip(request *http.Request) (*http.Response, error) {
	for logged := false; ; logged = true {
		response, err := w.next.RoundTrip(request)
		if err == nil || request.URL.Query().Get("watch") != "true" {
			return response, err
		}
		if !logged {
			ctrl.Log.Info("Watch request failed; retrying until the API server responds", "path", request.URL.Path, "error", err.Error())
		}
		select {
		case <-request.Context().Done():
			return nil, err
		case <-time.After(wait.Jitter(watchRetryDelay, 1)):
		}
	}
}

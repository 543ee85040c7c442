// Package transport changes how client-go repeats requests to the API server.
package transport

import (
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Wrap returns a transport that returns the responses to writes at once, and repeats failed watch requests promptly.
func Wrap(next http.RoundTripper) http.RoundTripper { return watchRetrier{promptWrites{next}} }

// promptWrites returns the response to a write at once. An admission webhook may deny a write with
// the status 429 or 503 and a time after which the client is to retry. client-go would wait for that
// time, ten times in a row, and meanwhile the status would not report the failure. The operator
// retries writes at its own intervals. Only if the API server is overloaded, client-go waits.
type promptWrites struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p promptWrites) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := p.next.RoundTrip(request)
	if err == nil && request.Method != http.MethodGet && !isOverload(response) {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// isOverload reports whether API Priority and Fairness rejected the request. It responds with a text, and
// webhooks and all other parts of the API server with an object of the kind Status.
// Source: k8s.io/apiserver/pkg/server/filters, tooManyRequests.
func isOverload(response *http.Response) bool {
	isText := strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain")
	return isText && response.StatusCode == http.StatusTooManyRequests
}

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

package transport

import (
	"net/http"
	"strings"
)

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

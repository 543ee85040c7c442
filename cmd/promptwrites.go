package main

import "net/http"

// promptWrites returns the response to a write at once. An admission webhook may deny a write with
// the status 429 or 503 and a time after which the client is to retry. client-go would wait for that
// time, ten times in a row, and meanwhile the status would not report the failure. The operator
// retries writes at its own intervals.
type promptWrites struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p promptWrites) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := p.next.RoundTrip(request)
	if err == nil && request.Method != http.MethodGet {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// Package transport changes how client-go repeats requests to the API server.
package transport

import "net/http"

// Wrap returns a transport that returns the responses to writes at once, and repeats failed watch requests promptly.
func Wrap(next http.RoundTripper) http.RoundTripper { return watchRetrier{promptWrites{next}} }

package transport

import (
	"net/http"
	"testing"
)

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

package main

import (
	"net/http"
	"testing"
)

func TestPromptWritesRemovesRetryAfterFromResponsesToWritesOnly(t *testing.T) {
	server := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"20"}}}, nil
	})
	for method, want := range map[string]string{
		http.MethodPost: "", http.MethodPut: "", http.MethodPatch: "", http.MethodDelete: "", http.MethodGet: "20",
	} {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://server/echoes", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := promptWrites{server}.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("%s: Retry-After = %q, want %q", method, got, want)
		}
	}
}

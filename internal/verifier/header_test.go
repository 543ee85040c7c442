package verifier

import (
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// respond sends a response with these lines of its header.
func respond(status, body string, lines ...string) http.HandlerFunc {
	lines = append([]string{"HTTP/1.1 " + status}, lines...)
	return raw(strings.Join(append(lines, "Connection: close", "", body), "\r\n"))
}

func TestRoundComparesTheDeclaredHeaders(t *testing.T) {
	declared := map[string]string{"Content-Type": "text/plain; charset=utf-8", "Www-Authenticate": `Basic realm="a  b"`}
	const contentType, challenge = "Content-Type: text/plain; charset=utf-8", `WWW-Authenticate: Basic realm="a  b"`
	for _, c := range []struct {
		name  string
		want  Result
		lines []string
	}{
		{"the declared headers", OK, []string{contentType, challenge}},
		{"names in lower case and further headers", OK, []string{"via: 1.1 gateway", strings.ToLower(challenge[:16]) + challenge[16:], contentType, "X-A: b"}},
		{"spaces around a value, which HTTP removes", OK, []string{"Content-Type:text/plain; charset=utf-8", challenge + " \t"}},
		{"a missing header", WrongHeader, []string{contentType}},
		{"no header", WrongHeader, nil},
		{"an empty value", WrongHeader, []string{contentType, "WWW-Authenticate:"}},
		{"another value", WrongHeader, []string{contentType, `WWW-Authenticate: Basic realm="b"`}},
		{"a value with upper and lower case exchanged", WrongHeader, []string{contentType, strings.ToUpper(challenge)}},
		{"a value with one space less", WrongHeader, []string{contentType, `WWW-Authenticate: Basic realm="a b"`}},
		{"a value with an appendix", WrongHeader, []string{contentType + "; x=y", challenge}},
		{"a second value", WrongHeader, []string{contentType, challenge, "WWW-Authenticate: Bearer"}},
		{"the same value twice", WrongHeader, []string{contentType, challenge, challenge}},
		{"another value before the declared one", WrongHeader, []string{"content-type: text/html", contentType, challenge}},
	} {
		server := httptest.NewServer(respond("401 Unauthorized", message, c.lines...))
		for _, layer := range []Layer{Service, Route} {
			target := targetOf(t, server.URL)
			target.Layer, target.Status, target.Header = layer, http.StatusUnauthorized, declared
			if got := target.Round(t.Context()); got != c.want {
				t.Errorf("layer %s, %s: result = %s, want %s", layer, c.name, got, c.want)
			}
		}
		server.Close()
	}
}

// A response with the longest declared headers fits, beside those of a Gateway.
func TestRoundReadsTheLongestHeaders(t *testing.T) {
	lines := []string{"Via: " + strings.Repeat("g", 8<<10)}
	declared := map[string]string{}
	for i := range 16 {
		name := "X-" + strings.Repeat(string(rune('a'+i)), 61)
		declared[http.CanonicalHeaderKey(name)] = strings.Repeat("v", 1024)
		lines = append(lines, name+": "+strings.Repeat("v", 1024))
	}
	target := serve(t, respond("200 OK", message, lines...))
	target.Header = declared
	expectRound(t, target, OK)
}

func TestRoundDoesNotFollowARedirect(t *testing.T) {
	followed := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the verifier has followed the redirect")
	}))
	defer followed.Close()
	for _, status := range []string{"301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"} {
		// Clients reject the last two, but the API server accepts them.
		for _, location := range []string{followed.URL, "/", "http://%zz", ":"} {
			target := serve(t, respond(status, message, "Location: "+location))
			target.Status = statusOf(t, status)
			target.Header = map[string]string{"Location": location}
			if got := target.Round(t.Context()); got != OK {
				t.Errorf("status %s, Location %s: result = %s, want %s", status, location, got, OK)
			}
		}
	}
}

func TestRoundOfAStatusWithoutABody(t *testing.T) {
	for _, c := range []struct {
		status, body string
		want         Result
	}{
		{"204 No Content", "", OK}, {"205 Reset Content", "", OK}, {"304 Not Modified", "", OK}, {"205 Reset Content", message, WrongBody},
	} {
		target := serve(t, respond(c.status, c.body))
		target.Status, target.Length, target.SHA256 = statusOf(t, c.status), 0, sha256.Sum256(nil)
		if got := target.Round(t.Context()); got != c.want {
			t.Errorf("status %s with the body %q: result = %s, want %s", c.status, c.body, got, c.want)
		}
	}
}

// statusOf returns the code of a status line.
func statusOf(t *testing.T, status string) int {
	t.Helper()
	code, err := strconv.Atoi(status[:3])
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// The value of a header may be confidential.
func TestLogHasNoValueOfAHeader(t *testing.T) {
	const declared, received = "declared-secret", "received-secret"
	target := serve(t, respond("200 OK", message, "Set-Cookie: "+received))
	target.Header = map[string]string{"Set-Cookie": declared}
	var log buffer
	runner := NewRunner(target, time.Hour, 1, slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	runner.round(t.Context())
	if text := log.String(); !strings.Contains(text, `"result":"wrong_header"`) || strings.Contains(text, declared) || strings.Contains(text, received) {
		t.Errorf("log = %s, want the result wrong_header and no value of a header", text)
	}
	if got := testutil.ToFloat64(runner.requests.WithLabelValues(string(WrongHeader))); got != 1 {
		t.Errorf("echo_verify_rounds_total{result=%q} = %v, want 1", WrongHeader, got)
	}
	if got := testutil.CollectAndCount(runner.registry, "echo_verify_rounds_total"); got != len(Results) {
		t.Errorf("echo_verify_rounds_total has %d series, want one for each of the %d results", got, len(Results))
	}
}

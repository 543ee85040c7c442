// Package chaos runs the operator's program where only real processes fail: leaders that end or hang, API servers that are
// unavailable or unreliable, webhooks that do not respond, objects that fill the memory. What one operator does in every order of
// events, test/explore explores.
package chaos

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
)

// proxy is between one operator and its API server.
type proxy struct {
	server *httptest.Server
	// faults is the share of requests that fail.
	faults atomic.Value
	// isDisconnected is true while every request fails.
	isDisconnected atomic.Bool

	requests, watches, injected atomic.Int64

	mu     sync.Mutex
	writes []string
}

// newProxy starts a proxy, whose clients act as the user of the configuration.
func newProxy(upstream *rest.Config) (*proxy, error) {
	address, err := url.Parse(upstream.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(upstream)
	if err != nil {
		return nil, err
	}
	p := &proxy{}
	p.faults.Store(0.0)
	silent := log.New(io.Discard, "", 0) // Operators that are killed would fill the log.
	forward := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(address) }, Transport: transport, ErrorLog: silent, FlushInterval: -1,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) }))
	p.server.EnableHTTP2, p.server.Config.ErrorLog = true, silent
	p.server.StartTLS()
	return p, nil
}

func (p *proxy) close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// config connects to the proxy.
func (p *proxy) config() *rest.Config {
	return &rest.Config{Host: p.server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}}
}

// disconnect fails every request until connect.
func (p *proxy) disconnect() {
	p.isDisconnected.Store(true)
	p.server.CloseClientConnections()
}

// written returns the writes since the first of them.
func (p *proxy) written(since int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.writes[since:])
}

func (p *proxy) connect() { p.isDisconnected.Store(false) }

var requestInfo = apirequest.RequestInfoFactory{
	APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api"),
}

// isOfEcho reports whether a write is of an Echo or a child, and not of a lease, an event or a review.
func isOfEcho(r *apirequest.RequestInfo) bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) &&
		!slices.Contains([]string{"leases", "events", "subjectaccessreviews", "tokenreviews", "operatorconditions"}, r.Resource)
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil || p.isDisconnected.Load() {
		panic(http.ErrAbortHandler)
	}
	if !info.IsResourceRequest {
		forward.ServeHTTP(w, r)
		return
	}
	p.requests.Add(1)
	if info.Verb == "watch" {
		p.watches.Add(1)
		defer p.watches.Add(-1)
	}
	isFaulty := rand.Float64() < p.faults.Load().(float64) //nolint:forcetypeassert,gosec // It holds this type; it is no secret.
	isWrite := isOfEcho(info)
	if isWrite {
		p.mu.Lock()
		p.writes = append(p.writes, info.Verb+" "+info.Resource+" "+info.Namespace+"/"+info.Name)
		p.mu.Unlock()
	}
	// The API server may respond before it has the whole request, and net/http then sometimes never ends the response.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if isFaulty {
		p.injected.Add(1)
		p.fail(w, r, forward, info.Verb == "watch", isWrite)
		return
	}
	forward.ServeHTTP(w, r)
}

// fail fails one request in one of the ways in which networks, load balancers and API servers do.
func (p *proxy) fail(w http.ResponseWriter, r *http.Request, forward http.Handler, isWatch, isWrite bool) {
	switch n := rand.IntN(8); { //nolint:gosec // Not a secret.
	case isWatch: // It ends without an error, sooner or later.
		ctx, cancel := context.WithTimeout(r.Context(), rand.N(3*time.Second)) //nolint:gosec // As above.
		defer cancel()
		forward.ServeHTTP(w, r.WithContext(ctx))
	case isWrite && n < 4: // The response is lost.
		forward.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	case n < 5:
		panic(http.ErrAbortHandler)
	case n < 6:
		time.Sleep(rand.N(500 * time.Millisecond)) //nolint:gosec // As above.
		forward.ServeHTTP(w, r)
	default:
		codes := []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout}
		code := codes[rand.IntN(len(codes))] //nolint:gosec // As above.
		if code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, "injected by the proxy", code)
	}
}

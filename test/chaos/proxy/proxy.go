// Package proxy stands between an operator and its API server, speaks TLS to both, and injects
// faults into requests, into single events of a watch, or by serving stale reads.
package proxy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// Request is a request of the operator.
type Request struct {
	// Verb is the API verb: get, list, watch, create, update, patch or delete.
	Verb string
	// Resource is the plural name, with the subresource if there is one: echoes/status.
	Resource string
	// Namespace and Name identify the object. Each may be empty.
	Namespace, Name string
}

func (r Request) String() string {
	return fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
}

// IsWrite reports whether the request changes an Echo or a child.
func (r Request) IsWrite() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) && kinds.IsWritten(r.Resource)
}

// Fault describes how the proxy handles a request. The zero value forwards it.
type Fault struct {
	// Delay is how long the proxy waits before it does anything else.
	Delay time.Duration
	// Status, unless 0, is the HTTP status with which the proxy responds in place of the API
	// server.
	Status int
	// Reset closes the connection without forwarding the request.
	Reset bool
	// DropResponse forwards the request and closes the connection in place of a response.
	DropResponse bool
	// Then is called after that, before the operator can notice the fault.
	Then func()
}

// EventFault describes how the proxy handles an event of a watch.
type EventFault int

// Faults of an event.
const (
	// Deliver forwards the event.
	Deliver EventFault = iota
	// Drop withholds the event, and all later ones. The watch expires soon after, because no API
	// server withholds events forever.
	Drop
	// Duplicate forwards the event twice.
	Duplicate
	// CloseWatch closes the watch before the event, without an error.
	CloseWatch
	// Expire ends the watch before the event with 410 Gone, so the client has to list again.
	Expire
)

// dropTimeout is how long a watch stays open after an event was dropped.
const dropTimeout = 300 * time.Millisecond

// Plan decides on faults. Its methods are called concurrently.
type Plan interface {
	// Request returns the fault of a request.
	Request(Request) Fault
	// Event returns the fault of the next event of a watch.
	Event(watch Request) EventFault
}

// Write is a write request that reached the API server.
type Write struct {
	Request
	// Code is the HTTP status of the API server's response.
	Code int
}

// Proxy is a fault proxy for one operator.
type Proxy struct {
	server   *httptest.Server
	upstream *url.URL
	client   http.RoundTripper

	mu      sync.Mutex
	plan    Plan
	writes  []Write
	faults  map[string]int
	watches int
	// requests counts requests for resources.
	requests int
	stale    *snapshot
}

// snapshot is the state that a lagging replica of the API server serves.
type snapshot struct {
	resources sets.Set[string]
	version   string
	resumed   chan struct{}
}

// New starts a proxy. Its clients act as the user of the configuration.
func New(upstream *rest.Config) (*Proxy, error) {
	address, err := url.Parse(upstream.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(upstream)
	if err != nil {
		return nil, err
	}
	p := &Proxy{upstream: address, client: transport, faults: map[string]int{}}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	// Operators that are killed during a TLS handshake would fill the log.
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	return p, nil
}

// Close stops the proxy.
func (p *Proxy) Close() {
	p.Resume()
	p.server.CloseClientConnections()
	p.server.Close()
}

// Config connects to the proxy.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: p.server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}}
}

// SetPlan injects the faults of the plan from now on. Nil injects none.
func (p *Proxy) SetPlan(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// Writes returns the writes that have reached the API server.
func (p *Proxy) Writes() []Write {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.writes)
}

// Faults returns how many faults of each class were injected.
func (p *Proxy) Faults() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// Requests returns the number of requests, including those that were not forwarded.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Watches returns the number of open watches.
func (p *Proxy) Watches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watches
}

// ServeStale serves the resources as they were at the version, until Resume: watches deliver no
// events, and lists return the old state. Writes and reads of single objects are forwarded,
// because an API server reads those from etcd.
func (p *Proxy) ServeStale(version string, resources ...string) {
	p.Resume()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stale = &snapshot{resources: sets.New(resources...), version: version, resumed: make(chan struct{})}
	p.faults["stale reads"]++
}

// Resume ends ServeStale: lists return the current state, and watches deliver what happened since.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stale != nil {
		close(p.stale.resumed)
		p.stale = nil
	}
}

// staleSnapshot returns the snapshot from which the resource is served, or nil.
func (p *Proxy) staleSnapshot(resource string) *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stale == nil || !p.stale.resources.Has(resource) {
		return nil
	}
	return p.stale
}

var requestInfo = apirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// ServeHTTP handles one request of the operator.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	request := Request{Verb: info.Verb, Resource: info.Resource, Namespace: info.Namespace, Name: info.Name}
	if info.Subresource != "" {
		request.Resource += "/" + info.Subresource
	}
	var fault Fault
	if info.IsResourceRequest {
		fault = p.fault(request)
	}
	wait(r.Context(), fault.Delay)
	switch {
	case fault.Reset:
		fault.abort()
	case fault.Status != 0:
		respondError(w, request, fault.Status)
	case request.Verb == "watch":
		p.watch(w, r, request)
	default:
		p.forward(w, r, request, fault)
	}
}

// abort closes the connection, or the HTTP/2 stream.
func (f Fault) abort() {
	if f.Then != nil {
		f.Then()
	}
	panic(http.ErrAbortHandler)
}

func (p *Proxy) fault(request Request) Fault {
	p.mu.Lock()
	p.requests++
	plan := p.plan
	p.mu.Unlock()
	if plan == nil {
		return Fault{}
	}
	fault := plan.Request(request)
	switch {
	case fault.Reset:
		p.count("reset")
	case fault.DropResponse:
		p.count("response dropped")
	case fault.Status != 0:
		p.count(fmt.Sprint(fault.Status))
	case fault.Delay > 0:
		p.count("delay")
	}
	return fault
}

func (p *Proxy) count(class string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[class]++
}

func wait(ctx context.Context, delay time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(delay):
	}
}

// respondError responds with an error, in the format of the API server.
func respondError(w http.ResponseWriter, request Request, code int) {
	status := apierrors.NewGenericServerResponse(code, request.Verb, schema.GroupResource{Resource: request.Resource},
		request.Name, "injected by the fault proxy", 0, true).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status) // The operator may have exited.
}

// forward sends the request to the API server, and returns its response.
func (p *Proxy) forward(w http.ResponseWriter, r *http.Request, request Request, fault Fault) {
	if snapshot := p.staleSnapshot(request.Resource); snapshot != nil && request.Verb == "list" {
		query := r.URL.Query()
		query.Set("resourceVersion", snapshot.version)
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
		r.URL.RawQuery = query.Encode()
	}
	response, err := p.send(r)
	if err != nil {
		fault.abort()
	}
	defer func() { _ = response.Body.Close() }() // The body was read to its end.
	var body bytes.Buffer
	if _, err := io.Copy(&body, response.Body); err != nil {
		fault.abort()
	}
	if request.IsWrite() {
		if request.Verb == "create" {
			request.Name = nameIn(body.Bytes())
		}
		p.mu.Lock()
		p.writes = append(p.writes, Write{Request: request, Code: response.StatusCode})
		p.mu.Unlock()
	}
	if fault.DropResponse {
		fault.abort()
	}
	copyHeader(w, response)
	w.WriteHeader(response.StatusCode)
	_, _ = body.WriteTo(w) // The operator may have exited.
}

// nameIn returns the name of the object, or of the object that an error is about, in a response: the
// path of a creation has none.
func nameIn(response []byte) string {
	var object struct {
		Metadata struct{ Name string }
		Details  struct{ Name string }
	}
	_ = json.Unmarshal(response, &object) // The name stays empty.
	return cmp.Or(object.Metadata.Name, object.Details.Name)
}

// send sends the request to the API server. It asks for JSON, in which events of a watch are
// separate lines.
func (p *Proxy) send(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	sent.URL.Scheme, sent.URL.Host = p.upstream.Scheme, p.upstream.Host
	sent.Host, sent.RequestURI = "", ""
	if accept := sent.Header.Get("Accept"); accept != "" && !asOtherType(accept) {
		sent.Header.Set("Accept", "application/json")
	}
	sent.Header.Del("Accept-Encoding")
	return p.client.RoundTrip(sent)
}

// asOtherType reports whether the client asks for another type than the resource's own, as for
// discovery and partial objects.
func asOtherType(accept string) bool { return strings.Contains(accept, "as=") }

func copyHeader(w http.ResponseWriter, response *http.Response) {
	maps.Copy(w.Header(), response.Header)
}

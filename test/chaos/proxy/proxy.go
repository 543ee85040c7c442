// Package proxy stands between an operator and its API server, speaks TLS to both, and makes
// faults: for a whole request, for a single event of a watch, or of the view as a whole.
package proxy

import (
	"bytes"
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
)

// Request is what the operator asks for.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb string
	// Resource is the plural, with the subresource where there is one: echoes/status.
	Resource string
	// Namespace and Name of the object; each may be empty.
	Namespace, Name string
}

func (r Request) String() string {
	return fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
}

// IsWrite tells whether the request changes an Echo or a child. Leases, events and reviews
// are not part of what an operator makes of an Echo.
func (r Request) IsWrite() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete"}, r.Verb) &&
		slices.Contains([]string{"echoes", "echoes/status", "deployments", "services", "poddisruptionbudgets"}, r.Resource)
}

// Fault is what becomes of a request. The zero value lets it pass.
type Fault struct {
	// Delay is waited before anything else.
	Delay time.Duration
	// Status, unless 0, is answered in the API server's place: an HTTP status.
	Status int
	// Reset drops the request, unserved and unanswered.
	Reset bool
	// LoseAnswer drops only the answer: the API server has served the request.
	LoseAnswer bool
	// Then is called when that has happened, before the operator can notice.
	Then func()
}

// EventFault is what becomes of an event of a watch.
type EventFault int

// Faults of an event.
const (
	Deliver EventFault = iota
	// Drop hides the event. As no API server does that for ever, the watch expires soon after.
	Drop
	// Duplicate sends it twice.
	Duplicate
	// Cut ends the watch before the event, without a word.
	Cut
	// Expire ends the watch before the event with 410 Gone: everything has to be read anew.
	Expire
)

// dropped is how long an event stays hidden.
const dropped = 300 * time.Millisecond

// Plan decides about faults. It is called from many goroutines.
type Plan interface {
	Request(Request) Fault
	Event(Request) EventFault
}

// Write is a write that reached the API server.
type Write struct {
	Request
	// Code is the HTTP status that the API server answered.
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
	// requests is how many there were for resources.
	requests int
	frozen   *view
}

// view is what an API server replica shows that lags.
type view struct {
	resources sets.Set[string]
	version   string
	thawed    chan struct{}
}

// New starts a proxy for somebody who may do on the API server what the configuration's
// user may.
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
	// A killed operator leaves half a handshake behind; that is no news.
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.StartTLS()
	return p, nil
}

// Close ends it.
func (p *Proxy) Close() {
	p.Thaw()
	p.server.CloseClientConnections()
	p.server.Close()
}

// Config says how to reach the proxy.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: p.server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw}),
	}}
}

// SetPlan makes the faults of the plan from now on; nil ends them.
func (p *Proxy) SetPlan(plan Plan) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

// Writes returns the writes that reached the API server so far.
func (p *Proxy) Writes() []Write {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.writes)
}

// Faults returns how many faults of each class were made so far.
func (p *Proxy) Faults() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.faults)
}

// Requests returns how many requests there were so far, served or not.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// Watches returns how many watches are open.
func (p *Proxy) Watches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watches
}

// Freeze shows the resources as they were at the version, until Thaw: no event arrives, and
// who lists them anew gets that old state. Writes, and reads of single objects, which an API
// server answers from etcd, go through.
func (p *Proxy) Freeze(version string, resources ...string) {
	p.Thaw()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = &view{resources: sets.New(resources...), version: version, thawed: make(chan struct{})}
	p.faults["frozen view"]++
}

// Thaw lets the view catch up.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen.thawed)
		p.frozen = nil
	}
}

// frozenView returns the frozen view of a resource, or nil.
func (p *Proxy) frozenView(resource string) *view {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen == nil || !p.frozen.resources.Has(resource) {
		return nil
	}
	return p.frozen
}

var requestInfo = apirequest.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// ServeHTTP serves one request of the operator's.
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
		refuse(w, request, fault.Status)
	case request.Verb == "watch":
		p.watch(w, r, request)
	default:
		p.serve(w, r, request, fault)
	}
}

// abort drops the request, and with it its connection or stream.
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
	case fault.LoseAnswer:
		p.count("answer lost")
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

// refuse answers in the API server's place, and in its form.
func refuse(w http.ResponseWriter, request Request, code int) {
	status := apierrors.NewGenericServerResponse(code, request.Verb, schema.GroupResource{Resource: request.Resource},
		request.Name, "a fault of the proxy's", 0, true).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status) // The operator may be gone.
}

// serve has the API server serve the request, and passes its answer on.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, request Request, fault Fault) {
	if view := p.frozenView(request.Resource); view != nil && request.Verb == "list" {
		query := r.URL.Query()
		query.Set("resourceVersion", view.version)
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchExact))
		r.URL.RawQuery = query.Encode()
	}
	response, err := p.ask(r)
	if err != nil {
		fault.abort()
	}
	defer func() { _ = response.Body.Close() }() // It was read to its end.
	var body bytes.Buffer
	if _, err := io.Copy(&body, response.Body); err != nil {
		fault.abort()
	}
	if request.IsWrite() {
		p.mu.Lock()
		p.writes = append(p.writes, Write{Request: request, Code: response.StatusCode})
		p.mu.Unlock()
	}
	if fault.LoseAnswer {
		fault.abort()
	}
	copyHeader(w, response)
	w.WriteHeader(response.StatusCode)
	_, _ = body.WriteTo(w) // The operator may be gone.
}

// ask sends the request to the API server. Answers are asked for in JSON, in which the
// events of a watch can be told apart.
func (p *Proxy) ask(r *http.Request) (*http.Response, error) {
	asked := r.Clone(r.Context())
	asked.URL.Scheme, asked.URL.Host = p.upstream.Scheme, p.upstream.Host
	asked.Host, asked.RequestURI = "", ""
	if accept := asked.Header.Get("Accept"); accept != "" && !isTable(accept) {
		asked.Header.Set("Accept", "application/json")
	}
	asked.Header.Del("Accept-Encoding")
	return p.client.RoundTrip(asked)
}

// isTable tells of discovery and of partial objects, whose form is part of the type.
func isTable(accept string) bool { return strings.Contains(accept, "as=") }

func copyHeader(w http.ResponseWriter, response *http.Response) {
	maps.Copy(w.Header(), response.Header)
}

package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// fixedPlan returns the same fault for every request, and one fault after the other for events.
type fixedPlan struct {
	fault  Fault
	events []EventFault
}

func (f *fixedPlan) Request(r Request) Fault {
	if r.Verb == "watch" {
		return Fault{}
	}
	return f.fault
}

func (f *fixedPlan) Event(Request) EventFault {
	if len(f.events) == 0 {
		return Deliver
	}
	fault := f.events[0]
	f.events = f.events[1:]
	return fault
}

// newProxy returns a proxy of a server that accepts any Service, and whose watches deliver Services
// of the versions 1 to 3; a client of the proxy; and a function that returns the requests that
// the server received.
func newProxy(t *testing.T, plan Plan) (*Proxy, kubernetes.Interface, func() []string) {
	t.Helper()
	received := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received <- r.Method + " " + r.URL.RequestURI()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = w.Write([]byte(`{"kind": "Service", "apiVersion": "v1", "metadata": {"name": "a"}}`))
			return
		}
		for version := range 3 {
			_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"Service","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"%d"}}}`+"\n", version+1)
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	}))
	t.Cleanup(server.CloseClientConnections)
	p, err := New(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.SetPlan(plan)
	clients, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	return p, clients, func() (all []string) {
		for {
			select {
			case request := <-received:
				all = append(all, request)
			case <-time.After(50 * time.Millisecond):
				return all
			}
		}
	}
}

func create(ctx context.Context, c kubernetes.Interface) error {
	_, err := c.CoreV1().Services("ns").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	return err
}

func TestRequestFaults(t *testing.T) {
	called := false
	for name, test := range map[string]struct {
		fault             Fault
		forwarded, failed bool
		is                func(error) bool
	}{
		"no fault":            {forwarded: true},
		"409 Conflict":        {fault: Fault{Status: http.StatusConflict}, failed: true, is: apierrors.IsConflict},
		"500 internal error":  {fault: Fault{Status: http.StatusInternalServerError}, failed: true, is: apierrors.IsInternalError},
		"503 unavailable":     {fault: Fault{Status: http.StatusServiceUnavailable}, failed: true, is: apierrors.IsServiceUnavailable},
		"504 timeout":         {fault: Fault{Status: http.StatusGatewayTimeout}, failed: true, is: apierrors.IsTimeout},
		"connection reset":    {fault: Fault{Reset: true}, failed: true},
		"response is dropped": {fault: Fault{DropResponse: true, Then: func() { called = true }}, forwarded: true, failed: true},
		"request is delayed":  {fault: Fault{Delay: 50 * time.Millisecond}, forwarded: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, c, received := newProxy(t, &fixedPlan{fault: test.fault})
			start := time.Now()
			err := create(t.Context(), c)
			if (err != nil) != test.failed || test.is != nil && !test.is(err) {
				t.Errorf("create a Service: error %v, want an error: %v", err, test.failed)
			}
			if time.Since(start) < test.fault.Delay {
				t.Errorf("create a Service: took %s, want at least %s", time.Since(start), test.fault.Delay)
			}
			if got := len(received()) > 0; got != test.forwarded {
				t.Errorf("forwarded = %v, want %v", got, test.forwarded)
			}
			if got := len(p.Writes()) == 1; got != test.forwarded {
				t.Errorf("recorded as a write = %v, want %v", got, test.forwarded)
			}
		})
	}
	if !called {
		t.Error("Fault.Then of the dropped response was not called")
	}
}

// versions returns the versions that a watch delivers, then "closed" when the watch is closed or
// "idle" when no event arrives.
func versions(t *testing.T, c kubernetes.Interface) (all []string) {
	t.Helper()
	w, err := c.CoreV1().Services("ns").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open {
				return append(all, "closed")
			}
			if event.Type == watch.Error {
				all = append(all, fmt.Sprint(event.Object.(*metav1.Status).Code))
				continue
			}
			all = append(all, event.Object.(*corev1.Service).ResourceVersion)
		case <-time.After(2 * dropTimeout):
			return append(all, "idle")
		}
	}
}

func TestEventFaults(t *testing.T) {
	for name, test := range map[string]struct {
		events []EventFault
		want   string
	}{
		"no fault":  {nil, "[1 2 3 idle]"},
		"drop":      {[]EventFault{Deliver, Drop}, "[1 410 closed]"},
		"duplicate": {[]EventFault{Deliver, Duplicate}, "[1 2 2 3 idle]"},
		"close":     {[]EventFault{Deliver, CloseWatch}, "[1 closed]"},
		"expire":    {[]EventFault{Deliver, Deliver, Expire}, "[1 2 410 closed]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, _ := newProxy(t, &fixedPlan{events: test.events})
			if got := fmt.Sprint(versions(t, c)); got != test.want {
				t.Errorf("watch delivers %s, want %s", got, test.want)
			}
		})
	}
}

func TestServeStaleReturnsTheOldStateUntilResume(t *testing.T) {
	p, c, received := newProxy(t, nil)
	p.ServeStale("7", "services")
	if got := fmt.Sprint(versions(t, c)); got != "[idle]" {
		t.Errorf("stale watch delivers %s, want [idle]", got)
	}
	initial := true
	_, err := c.CoreV1().Services("ns").Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &initial})
	if !apierrors.IsInvalid(err) {
		t.Errorf("stale watch with initial events: error %v, want 422 Invalid", err)
	}
	received()
	if _, err := c.CoreV1().Services("ns").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Error(err)
	}
	if _, err := c.CoreV1().Services("ns").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	want := "[GET /api/v1/namespaces/ns/services?resourceVersion=7&resourceVersionMatch=Exact GET /api/v1/namespaces/ns/services/a]"
	if got := fmt.Sprint(received()); got != want {
		t.Errorf("the server received\n%s, want\n%s", got, want)
	}
	p.Resume()
	if got := fmt.Sprint(versions(t, c)); got != "[1 2 3 idle]" {
		t.Errorf("watch after Resume delivers %s, want [1 2 3 idle]", got)
	}
}

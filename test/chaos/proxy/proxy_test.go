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

// fixed is a plan of one fault for every request, and one for each event in turn.
type fixed struct {
	fault  Fault
	events []EventFault
}

func (f *fixed) Request(r Request) Fault {
	if r.Verb == "watch" {
		return Fault{}
	}
	return f.fault
}

func (f *fixed) Event(Request) EventFault {
	if len(f.events) == 0 {
		return Deliver
	}
	fault := f.events[0]
	f.events = f.events[1:]
	return fault
}

// newProxy stands before a server that takes any Service, and whose watches show Services
// of the versions 1 to 3. It tells what the server was asked for.
func newProxy(t *testing.T, plan Plan) (*Proxy, kubernetes.Interface, func() []string) {
	t.Helper()
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.RequestURI()
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
			case request := <-asked:
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

func TestRequests(t *testing.T) {
	called := false
	for name, test := range map[string]struct {
		fault          Fault
		served, failed bool
		is             func(error) bool
	}{
		"pass":        {served: true},
		"conflict":    {fault: Fault{Status: http.StatusConflict}, failed: true, is: apierrors.IsConflict},
		"error":       {fault: Fault{Status: http.StatusInternalServerError}, failed: true, is: apierrors.IsInternalError},
		"away":        {fault: Fault{Status: http.StatusServiceUnavailable}, failed: true, is: apierrors.IsServiceUnavailable},
		"time-out":    {fault: Fault{Status: http.StatusGatewayTimeout}, failed: true, is: apierrors.IsTimeout},
		"reset":       {fault: Fault{Reset: true}, failed: true},
		"answer lost": {fault: Fault{LoseAnswer: true, Then: func() { called = true }}, served: true, failed: true},
		"delay":       {fault: Fault{Delay: 50 * time.Millisecond}, served: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, c, asked := newProxy(t, &fixed{fault: test.fault})
			start := time.Now()
			err := create(t.Context(), c)
			if (err != nil) != test.failed || test.is != nil && !test.is(err) {
				t.Errorf("got error %v", err)
			}
			if time.Since(start) < test.fault.Delay {
				t.Error("it was not delayed")
			}
			if got := len(asked()) > 0; got != test.served {
				t.Errorf("served: %v, want %v", got, test.served)
			}
			if got := len(p.Writes()) == 1; got != test.served {
				t.Errorf("told as a write: %v, want %v", got, test.served)
			}
		})
	}
	if !called {
		t.Error("the hook of the lost answer was not called")
	}
}

// versions returns the versions that a watch shows, how it ends, and when it has been quiet.
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
				return append(all, "end")
			}
			if event.Type == watch.Error {
				all = append(all, fmt.Sprint(event.Object.(*metav1.Status).Code))
				continue
			}
			all = append(all, event.Object.(*corev1.Service).ResourceVersion)
		case <-time.After(2 * dropped):
			return append(all, "quiet")
		}
	}
}

func TestEvents(t *testing.T) {
	for name, test := range map[string]struct {
		events []EventFault
		want   string
	}{
		"deliver":   {nil, "[1 2 3 quiet]"},
		"drop":      {[]EventFault{Deliver, Drop}, "[1 410 end]"},
		"duplicate": {[]EventFault{Deliver, Duplicate}, "[1 2 2 3 quiet]"},
		"cut":       {[]EventFault{Deliver, Cut}, "[1 end]"},
		"expire":    {[]EventFault{Deliver, Deliver, Expire}, "[1 2 410 end]"},
	} {
		t.Run(name, func(t *testing.T) {
			_, c, _ := newProxy(t, &fixed{events: test.events})
			if got := fmt.Sprint(versions(t, c)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestFrozenView(t *testing.T) {
	p, c, asked := newProxy(t, nil)
	p.Freeze("7", "services")
	if got := fmt.Sprint(versions(t, c)); got != "[quiet]" {
		t.Errorf("a frozen watch shows %s", got)
	}
	initial := true
	_, err := c.CoreV1().Services("ns").Watch(t.Context(), metav1.ListOptions{SendInitialEvents: &initial})
	if !apierrors.IsInvalid(err) {
		t.Errorf("a watch that begins with a list: got %v", err)
	}
	asked()
	if _, err := c.CoreV1().Services("ns").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Error(err)
	}
	if _, err := c.CoreV1().Services("ns").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	want := "[GET /api/v1/namespaces/ns/services?resourceVersion=7&resourceVersionMatch=Exact GET /api/v1/namespaces/ns/services/a]"
	if got := fmt.Sprint(asked()); got != want {
		t.Errorf("the server was asked for\n%s, want\n%s", got, want)
	}
	p.Thaw()
	if got := fmt.Sprint(versions(t, c)); got != "[1 2 3 quiet]" {
		t.Errorf("a thawed watch shows %s", got)
	}
}

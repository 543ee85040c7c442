package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// eventFaults is a plan of one fault after the other for events.
type eventFaults []EventFault

func (*eventFaults) Request(Request) Fault { return Fault{} }

func (f *eventFaults) Event(Request) EventFault {
	if len(*f) == 0 {
		return Deliver
	}
	fault := (*f)[0]
	*f = (*f)[1:]
	return fault
}

// newClient returns a client of a proxy with the plan, of a server whose watches deliver Services of the
// versions 1 to 3.
func newClient(t *testing.T, plan Plan) kubernetes.Interface {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for version := range 3 {
			_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n", version+1)
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
	return clients
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
		events eventFaults
		want   string
	}{
		"no fault":  {nil, "[1 2 3 idle]"},
		"drop":      {eventFaults{Deliver, Drop}, "[1 410 closed]"},
		"duplicate": {eventFaults{Deliver, Duplicate}, "[1 2 2 3 idle]"},
		"close":     {eventFaults{Deliver, CloseWatch}, "[1 closed]"},
		"expire":    {eventFaults{Deliver, Deliver, Expire}, "[1 2 410 closed]"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := fmt.Sprint(versions(t, newClient(t, &test.events))); got != test.want {
				t.Errorf("watch delivers %s, want %s", got, test.want)
			}
		})
	}
}

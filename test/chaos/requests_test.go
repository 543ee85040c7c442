package chaos

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

// share is that of requests which fail.
const share = 0.15

// Requests fail, responses are lost and watches end, while users and another writer change Echoes and children and the operator is
// killed. The operator converges afterwards.
func TestUnreliableAPIServer(t *testing.T) {
	e := newEnvironment(t)
	o := e.start()
	o.faults.Store(share)
	disturb(e, 40, func() {
		o.Kill()
		e.run(o, o.config())
	})
	t.Logf("%d of %d requests failed", o.injected.Load(), o.requests.Load())
	e.verify(o)
}

// disturb makes random changes of two Echoes and their children.
func disturb(e *environment, count int, restart func()) {
	e.Helper()
	exists := map[string]bool{}
	for i := range count {
		name := []string{"one", "two"}[rand.IntN(2)] //nolint:gosec // Not a secret.
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: children.Name(&echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: name}})}}
		n := rand.IntN(10) //nolint:gosec // Not a secret.
		switch {
		case !exists[name]:
			e.must(e.create(e.namespace, name, echov1.EchoSpec{Message: "m", Replicas: 1}))
			exists[name] = true
		case n < 4:
			e.must(e.edit(name, func(s *echov1.EchoSpec) { s.Message = fmt.Sprint("message ", i) }))
		case n < 5:
			e.must(e.edit(name, func(s *echov1.EchoSpec) { s.Replicas, s.Port = 1+rand.Int32N(3), 80+rand.Int32N(2) })) //nolint:gosec // Not a secret.
		case n < 6:
			e.must(e.edit(name, func(s *echov1.EchoSpec) {
				if s.Route == nil {
					s.Route = everyChild().Route
				} else {
					s.Route = nil
				}
			}))
		case n < 7:
			e.must(e.client.Delete(e.Context(), &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}}))
			exists[name] = false
		case n < 8:
			e.must(client.IgnoreNotFound(e.client.Delete(e.Context(), deployment)))
		case n < 9:
			drift := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":4,"paused":true}}`))
			e.must(client.IgnoreNotFound(e.client.Patch(e.Context(), deployment, drift)))
		default:
			restart()
		}
		time.Sleep(rand.N(600 * time.Millisecond)) //nolint:gosec // Not a secret.
	}
}

package explore

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var maxStates = flag.Int("states", 3_000, "explore up to this `number` of states of each family")

func newEcho() *echov1.Echo {
	return &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Name: echoName},
		Spec:       echov1.EchoSpec{Message: "one", StatusCode: 200, Replicas: 1, Port: 80},
	}
}

// newWorld returns a world in which the Echo is ready, unless the family creates it.
func newWorld(t *testing.T, f family) *world {
	w := &world{
		objects: map[key]*item{}, cached: map[key]*item{}, withheld: map[string][]change{}, specs: map[int64]echov1.EchoSpec{},
		operator: newOperator(), again: never, version: firstVersion,
	}
	if f.operations[0].name != create.name {
		create.do(w)
		w.flush()
		w.settle(t)
		w.now += time.Hour // What happened before is long ago.
	}
	w.left, w.trail = f.left, nil
	return w
}

// settle follows the first transition until nothing happens any more.
func (w *world) settle(t *testing.T) {
	for range 1000 {
		after := w.successors(t, family{})
		if len(after) == 0 {
			return
		}
		*w = *after[len(after)-1]
	}
	t.Fatalf("the world does not settle: %v", w.trail.story()[900:])
}

var create = transition{"the user creates the Echo", func(w *world) {
	if err := w.create(newEcho()); err != nil {
		panic(err)
	}
}}

func edit(name string, change func(*echov1.EchoSpec)) transition {
	return transition{"the user " + name, func(w *world) {
		if echo, found := w.echo(); found {
			edited := echo.DeepCopy()
			change(&edited.Spec)
			w.update(edited)
		}
	}}
}

// external is what another client does with a child.
func external(name string, k key, do func(*world, client.Object)) transition {
	return transition{"another client " + name, func(w *world) {
		if found := w.objects[k]; found != nil {
			do(w, copyOf(found.Object))
		}
	}}
}

var (
	server  = key{"Deployment", "echo-hello"}
	message = func(text string) transition {
		return edit("edits the message to "+text, func(s *echov1.EchoSpec) { s.Message = text })
	}
	scale = func(replicas int32) transition {
		return edit("scales", func(s *echov1.EchoSpec) { s.Replicas = replicas })
	}
	remove = transition{"the user deletes the Echo", func(w *world) { w.remove(echoKey) }}
	drift  = external("changes the image", server, func(w *world, o client.Object) {
		o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image = "other" //nolint:forcetypeassert // The key has the kind.
		w.update(o)
	})
	unlabel = external("removes the operator's label", server, func(w *world, o client.Object) {
		delete(o.GetLabels(), children.ManagedByLabel)
		w.update(o)
	})
	unready = external("makes a pod fail its probe", key{"Pod", "echo-hello-1"}, func(w *world, o client.Object) {
		o.(*corev1.Pod).Status.Conditions[0].Status = corev1.ConditionFalse //nolint:forcetypeassert // The key has the kind.
		w.update(o)
	})
	route = edit("adds a route", func(s *echov1.EchoSpec) {
		s.Route = &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "public"}}, Scheme: "https", Paths: []echov1.Path{{Value: "/"}}}
	})
	shop   = key{"HTTPRoute", "shop"}
	deploy = transition{"another client creates HTTPRoute shop", func(w *world) {
		route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: shop.name}}
		route.Spec.ParentRefs = []gatewayv1.ParentReference{{Name: "public"}}
		route.Spec.Rules = []gatewayv1.HTTPRouteRule{{}}
		if err := w.create(route); err != nil {
			panic(err)
		}
	}}
	move = external("changes HTTPRoute shop", shop, func(w *world, o client.Object) {
		o.(*gatewayv1.HTTPRoute).Spec.Hostnames = []gatewayv1.Hostname{"shop.example.com"} //nolint:forcetypeassert // The key has the kind.
		w.update(o)
	})
	uninstall      = external("deletes HTTPRoute shop", shop, func(w *world, _ client.Object) { w.remove(shop) })
	override       = edit("overrides HTTPRoute shop", overrideShop)
	createOverride = transition{create.name, func(w *world) {
		echo := newEcho()
		overrideShop(&echo.Spec)
		if err := w.create(echo); err != nil {
			panic(err)
		}
	}}
	verify = edit("has it verified", func(s *echov1.EchoSpec) {
		s.Verify = &echov1.Verify{From: echov1.VerifyFromCluster, PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}
	})
	everyNode = edit("has it verified from every node", func(s *echov1.EchoSpec) {
		s.Verify = &echov1.Verify{From: echov1.VerifyFromEveryNode, PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}
	})
	plain = edit("removes route and verify", func(s *echov1.EchoSpec) { s.Route, s.Verify = nil, nil })
)

func overrideShop(s *echov1.EchoSpec) {
	s.Route = &echov1.Route{Overrides: []echov1.RouteRef{{Name: shop.name}}, Scheme: "https", Paths: []echov1.Path{{Value: "/"}}}
}

var families = []family{
	{"create", []transition{create}, budget{1, 1, 1}},
	{"edit", []transition{message("two")}, budget{1, 0, 0}},
	{"edit with a fault", []transition{message("two")}, budget{0, 1, 1}},
	{"edit with a crash", []transition{message("two")}, budget{1, 0, 1}},
	{"edit twice", []transition{message("two"), message("one")}, budget{1, 0, 0}},
	{"scale", []transition{scale(2)}, budget{1, 0, 1}},
	{"scale and edit", []transition{scale(2), message("two")}, budget{}},
	{"scale back", []transition{scale(2), scale(1)}, budget{1, 0, 0}},
	{"delete and create", []transition{remove, create}, budget{1, 0, 0}},
	{"drift", []transition{drift}, budget{1, 1, 0}},
	{"probe", []transition{unready}, budget{1, 0, 0}},
	{"route", []transition{route, plain}, budget{1, 0, 0}},
	{"create an override", []transition{createOverride, deploy}, budget{}},
	{"override", []transition{deploy, override, move}, budget{1, 0, 0}},
	{"override with a fault", []transition{override, deploy, plain}, budget{0, 1, 1}},
	{"override again", []transition{deploy, override, uninstall, deploy}, budget{}},
	{"verify", []transition{verify, plain}, budget{1, 0, 0}},
	{"verify elsewhere", []transition{verify, everyNode}, budget{}},
	{"lost label", []transition{unlabel, message("two")}, budget{1, 0, 0}},
}

func TestExplore(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			r := explore(t, f, *maxStates)
			t.Log(r)
			for _, v := range r.violations {
				t.Error(v)
			}
		})
	}
}

// TestStories follows stories in which a bug was found. A story ends early if the operator no longer does what it did in it.
func TestStories(t *testing.T) {
	for _, s := range []struct {
		family string
		steps  []string
	}{
		{"edit with a crash", []string{
			"the user edits the message to two",
			"the operator reconciles; it patches Deployment echo-hello, and the operator crashes after it, and reads the Echo as it was before the last edit",
			"the operator reconciles: it patches Deployment echo-hello, writes the status",
		}},
	} {
		f := families[slices.IndexFunc(families, func(f family) bool { return f.name == s.family })]
		w := newWorld(t, f)
		for _, step := range s.steps {
			all := w.successors(t, f)
			i := slices.IndexFunc(all, func(after *world) bool { return after.trail.name == step })
			if i < 0 {
				break
			}
			w = all[i]
		}
		findings := w.findings
		if len(findings) == 0 && len(w.successors(t, f)) == 0 {
			findings = w.checkEnd(t)
		}
		for _, finding := range findings {
			t.Errorf("%s: %s\n\t%s", s.family, finding, strings.Join(w.trail.story(), "\n\t"))
		}
	}
}

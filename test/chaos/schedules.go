package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// schedules are as many as the options say, from their seed on.
func schedules(_ context.Context, o options) (all []scenario, err error) {
	for i := range o.runs {
		all = append(all, schedule(o.seed+i))
	}
	return all, nil
}

// schedule is a scenario of random operations under random faults; the seed decides on both.
func schedule(seed uint64) scenario {
	return scenario{name: fmt.Sprintf("seed %d", seed), run: func(ctx context.Context, w *world) error {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // It has to repeat itself.
		w.proxy.SetPlan(newRandomPlan(seed, random))
		w.history.viewLags = true
		if err := w.createEcho(ctx, echoes[0], echov1.EchoSpec{Message: "first"}); err != nil {
			return err
		}
		s := scheduler{world: w, random: random, exists: map[string]bool{echoes[0]: true}}
		var done []string
		for range 4 + random.IntN(8) {
			name, err := s.step(ctx)
			done = append(done, name)
			if err != nil {
				return fmt.Errorf("%v: %w", done, err)
			}
			pause(ctx, time.Duration(random.IntN(600))*time.Millisecond)
		}
		if err := w.verify(ctx); err != nil {
			return fmt.Errorf("%v: %w", done, err)
		}
		return nil
	}}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// echoes are the names of the Echoes in a schedule.
var echoes = []string{"one", "two"}

// scheduler does random things.
type scheduler struct {
	*world
	random *rand.Rand
	exists map[string]bool
	said   int
}

// step does one of them, and returns its name.
func (s *scheduler) step(ctx context.Context) (string, error) {
	echo := echoes[s.random.IntN(len(echoes))]
	if !s.exists[echo] {
		s.exists[echo] = true
		return "create " + echo, s.createEcho(ctx, echo, echov1.EchoSpec{Message: s.message(), Replicas: 1 + s.random.Int32N(3)})
	}
	switch n := s.random.IntN(20); {
	case n < 10:
		what, change := s.edit()
		return what + " of " + echo, s.editEcho(ctx, echo, change)
	case n < 11:
		s.exists[echo] = false
		return "delete " + echo, s.deleteEcho(ctx, echo)
	case n < 12:
		return "delete and create " + echo, errors.Join(s.deleteEcho(ctx, echo),
			s.createEcho(ctx, echo, echov1.EchoSpec{Message: s.message()}))
	case n < 16:
		what, kind, do := s.otherWriter(echo)
		return what + " of " + echo, s.onChild(ctx, echo, kind, do)
	case n < 18:
		return "kill the operator", s.restart()
	default:
		return "freeze the view", s.freeze(ctx)
	}
}

// message returns one that no Echo had before.
func (s *scheduler) message() string {
	s.said++
	return fmt.Sprintf("message %d", s.said)
}

// edit chooses a change of a spec, mostly with another message beside it.
func (s *scheduler) edit() (string, func(*echov1.EchoSpec)) {
	message := ""
	if s.random.IntN(4) > 0 {
		message = s.message()
	}
	replicas, port, targetPort := 1+s.random.Int32N(5), 80+s.random.Int32N(2), 5678+s.random.Int32N(2)
	changes := []struct {
		name   string
		change func(*echov1.EchoSpec)
	}{
		{"message", func(*echov1.EchoSpec) {}},
		{"replicas", func(spec *echov1.EchoSpec) { spec.Replicas = replicas }},
		{"replicas", func(spec *echov1.EchoSpec) { spec.Replicas = replicas }},
		{"port", func(spec *echov1.EchoSpec) { spec.Port = port }},
		{"targetPort", func(spec *echov1.EchoSpec) { spec.TargetPort = targetPort }},
		{"page on", func(spec *echov1.EchoSpec) { spec.Page = &echov1.Page{Title: "A title"} }},
		{"page off", func(spec *echov1.EchoSpec) { spec.Page = nil }},
		{"image on", func(spec *echov1.EchoSpec) { spec.Image = "docker.io/hashicorp/http-echo:0.2.3" }},
		{"image off", func(spec *echov1.EchoSpec) { spec.Image, spec.Args = "", nil }},
		{"resources on", func(spec *echov1.EchoSpec) {
			spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
		}},
		{"resources off", func(spec *echov1.EchoSpec) { spec.Resources = corev1.ResourceRequirements{} }},
		{"args on", func(spec *echov1.EchoSpec) {
			spec.Image, spec.Args = "docker.io/library/own:1", []string{"$(ECHO_TEXT)"}
		}},
		{"args off", func(spec *echov1.EchoSpec) { spec.Args = nil }},
	}
	chosen := changes[s.random.IntN(len(changes))]
	return chosen.name, func(spec *echov1.EchoSpec) {
		chosen.change(spec)
		if message != "" {
			spec.Message = message
		}
	}
}

func deployment() client.Object { return &appsv1.Deployment{} }
func service() client.Object    { return &corev1.Service{} }

// otherWriter chooses something that somebody else does to a child.
func (s *scheduler) otherWriter(echo string) (string, func() client.Object, func(context.Context, client.Object) error) {
	ofDeployment := func(change func(*appsv1.Deployment)) func(context.Context, client.Object) error {
		return func(ctx context.Context, child client.Object) error {
			return s.change(ctx, child, func() { change(child.(*appsv1.Deployment)) })
		}
	}
	remove := func(ctx context.Context, child client.Object) error { return s.plane.Client.Delete(ctx, child) }
	switch s.random.IntN(7) {
	case 0:
		s.expectedUIDs["Deployment echo-"+echo]++
		return "delete the Deployment", deployment, remove
	case 1:
		s.expectedUIDs["Service echo-"+echo]++
		return "delete the Service", service, remove
	case 2:
		return "scale the Deployment", deployment, ofDeployment(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](4) })
	case 3:
		return "change the image", deployment, ofDeployment(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "docker.io/library/other:1"
		})
	case 4:
		return "take the label away", deployment, ofDeployment(func(d *appsv1.Deployment) { delete(d.Labels, children.ManagedByLabel) })
	case 5:
		return "select others", service, func(ctx context.Context, child client.Object) error {
			return s.change(ctx, child, func() { child.(*corev1.Service).Spec.Selector = map[string]string{"app": "other"} })
		}
	default:
		return "add a label", deployment, ofDeployment(func(d *appsv1.Deployment) { d.Labels["team"] = "blue" })
	}
}

// frozen are what a lagging view can consist of.
var frozen = [][]string{{"echoes"}, {"deployments"}, {"echoes", "deployments", "services", "poddisruptionbudgets", "pods"}}

// freeze lets the operator see the world as it is now for some time.
func (s *scheduler) freeze(ctx context.Context) error {
	now, err := s.version(ctx)
	if err != nil {
		return err
	}
	resources := frozen[s.random.IntN(len(frozen))]
	if err := s.freezeView(now, resources); err != nil {
		return err
	}
	time.AfterFunc(time.Duration(s.random.IntN(4000))*time.Millisecond, s.proxy.Thaw)
	return nil
}

// randomPlan makes faults at random, but the same ones for the same seed: each kind of
// request has random numbers of its own, as the order between kinds is the operator's.
type randomPlan struct {
	seed            uint64
	requests, event float64

	mu      sync.Mutex
	randoms map[string]*rand.Rand
}

func newRandomPlan(seed uint64, random *rand.Rand) *randomPlan {
	return &randomPlan{
		seed:     seed,
		requests: []float64{0, 0.05, 0.15, 0.3}[random.IntN(4)],
		event:    []float64{0, 0.02, 0.1}[random.IntN(3)],
		randoms:  map[string]*rand.Rand{},
	}
}

// draw returns the random numbers of a kind of request.
func (p *randomPlan) draw(kind string, do func(*rand.Rand)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.randoms[kind] == nil {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(kind))                               // A hash does not fail.
		p.randoms[kind] = rand.New(rand.NewPCG(p.seed, hash.Sum64())) //nolint:gosec // It has to repeat itself.
	}
	do(p.randoms[kind])
}

// Request implements proxy.Plan.
func (p *randomPlan) Request(r proxy.Request) (fault proxy.Fault) {
	p.draw(r.Verb+" "+r.Resource, func(random *rand.Rand) {
		if random.Float64() >= p.requests {
			return
		}
		faults := []proxy.Fault{
			{Status: http.StatusTooManyRequests},
			{Status: http.StatusInternalServerError},
			{Status: http.StatusServiceUnavailable},
			{Status: http.StatusGatewayTimeout},
			{Reset: true},
			{Delay: time.Duration(random.IntN(500)) * time.Millisecond},
		}
		if r.IsWrite() {
			faults = append(faults, proxy.Fault{LoseAnswer: true}, proxy.Fault{LoseAnswer: true}, proxy.Fault{Status: http.StatusConflict})
		}
		fault = faults[random.IntN(len(faults))]
	})
	return fault
}

// Event implements proxy.Plan.
func (p *randomPlan) Event(r proxy.Request) (fault proxy.EventFault) {
	p.draw("event "+r.Resource, func(random *rand.Rand) {
		if random.Float64() < p.event {
			fault = []proxy.EventFault{proxy.Drop, proxy.Duplicate, proxy.Cut, proxy.Expire}[random.IntN(4)]
		}
	})
	return fault
}

package scenarios

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// coreSchedules is the number of random schedules in the fixed core.
const coreSchedules = 4

// schedules returns as many random schedules as the options ask for, starting with their seed.
func schedules(o harness.Options) (all []harness.Scenario, err error) {
	if o.Short {
		o.Runs = coreSchedules
	}
	for i := range o.Runs {
		all = append(all, schedule(o.Seed+i))
	}
	return all, nil
}

// schedule is a scenario of random operations with random faults. The seed determines both.
func schedule(seed uint64) harness.Scenario {
	return harness.Scenario{Name: fmt.Sprint(harness.SeedPrefix, seed), Run: func(ctx context.Context, e *harness.Environment) error {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // It must be reproducible.
		e.Proxy.SetPlan(newRandomPlan(seed, random))
		e.History.AllowLag()
		if err := e.CreateEcho(ctx, scheduledEchoes[0], echov1.EchoSpec{Message: "first"}); err != nil {
			return err
		}
		s := scheduler{Environment: e, random: random, exists: map[string]bool{scheduledEchoes[0]: true}}
		var done []string
		for range 4 + random.IntN(8) {
			name, err := s.step(ctx)
			done = append(done, name)
			if err != nil {
				return fmt.Errorf("%q: %w", done, err)
			}
			harness.Pause(ctx, time.Duration(random.IntN(600))*time.Millisecond)
		}
		if err := e.Verify(ctx); err != nil {
			return fmt.Errorf("%q: %w", done, err)
		}
		return nil
	}}
}

// scheduledEchoes are the names of the Echoes in a schedule.
var scheduledEchoes = []string{one, two}

// scheduler runs random steps.
type scheduler struct {
	*harness.Environment
	random   *rand.Rand
	exists   map[string]bool
	messages int
}

// step runs one of them, and returns its name.
func (s *scheduler) step(ctx context.Context) (string, error) {
	echo := scheduledEchoes[s.random.IntN(len(scheduledEchoes))]
	if !s.exists[echo] {
		s.exists[echo] = true
		return "create " + echo, s.CreateEcho(ctx, echo, echov1.EchoSpec{Message: s.message(), Replicas: 1 + s.random.Int32N(3)})
	}
	switch n := s.random.IntN(20); {
	case n < 10:
		name, change := s.edit()
		return name + " of " + echo, s.EditEcho(ctx, echo, change)
	case n < 11:
		s.exists[echo] = false
		return "delete " + echo, s.DeleteEcho(ctx, echo)
	case n < 12:
		return "delete and create " + echo, errors.Join(s.DeleteEcho(ctx, echo),
			s.CreateEcho(ctx, echo, echov1.EchoSpec{Message: s.message()}))
	case n < 16:
		name, kind, write := s.externalWriter(echo)
		return name + " of " + echo, s.OnChild(ctx, echo, kind, write)
	case n < 18:
		return "kill the operator", s.Restart()
	default:
		return "serve stale reads", s.serveStale(ctx)
	}
}

// message returns a message that no Echo had before.
func (s *scheduler) message() string {
	s.messages++
	return fmt.Sprintf("message %d", s.messages)
}

func unsetImage(spec *echov1.EchoSpec) { spec.Image, spec.Args, spec.ReadinessPath = "", nil, "" }

// edit chooses a change of a spec, mostly together with a new message.
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
		{"edit the message", func(*echov1.EchoSpec) {}},
		{"edit replicas", func(spec *echov1.EchoSpec) { spec.Replicas = replicas }},
		{"edit replicas", func(spec *echov1.EchoSpec) { spec.Replicas = replicas }},
		{"edit port", func(spec *echov1.EchoSpec) { spec.Port = port }},
		{"edit targetPort", func(spec *echov1.EchoSpec) { spec.TargetPort = targetPort }},
		{"set page", func(spec *echov1.EchoSpec) { unsetImage(spec); spec.Page = &echov1.Page{Title: "A title"} }},
		{"unset page", func(spec *echov1.EchoSpec) { spec.Page = nil }},
		{"set image", func(spec *echov1.EchoSpec) { spec.Image, spec.StatusCode, spec.Page = customImage, 0, nil }},
		{"unset image", unsetImage},
		{"set resources", func(spec *echov1.EchoSpec) { spec.Resources.Limits = memoryLimit("32Mi") }},
		{"unset resources", func(spec *echov1.EchoSpec) { spec.Resources = echov1.Resources{} }},
		{"set args", func(spec *echov1.EchoSpec) {
			spec.Image, spec.Args, spec.StatusCode, spec.Page = customImage, []string{"$(ECHO_TEXT)"}, 0, nil
		}},
		{"set args and readinessPath", func(spec *echov1.EchoSpec) {
			spec.Image, spec.Args, spec.StatusCode, spec.Page, spec.ReadinessPath = customImage, []string{"serve"}, 0, nil, "/ready"
		}},
		{"unset args", func(spec *echov1.EchoSpec) { spec.Args, spec.ReadinessPath = nil, "" }},
		{"set statusCode", func(spec *echov1.EchoSpec) { unsetImage(spec); spec.StatusCode = 503 }},
		{"unset statusCode", func(spec *echov1.EchoSpec) { spec.StatusCode = 0 }},
		{"set pod", func(spec *echov1.EchoSpec) { spec.Pod = podSettings() }},
		{"set other pod settings", func(spec *echov1.EchoSpec) {
			spec.Pod = &echov1.PodSettings{Labels: map[string]echov1.LabelValue{"a": "b"}}
		}},
		{"unset pod", func(spec *echov1.EchoSpec) { spec.Pod = nil }},
	}
	chosen := changes[s.random.IntN(len(changes))]
	return chosen.name, func(spec *echov1.EchoSpec) {
		chosen.change(spec)
		if message != "" {
			spec.Message = message
		}
	}
}

// externalWriter chooses a write of an external writer to a child.
func (s *scheduler) externalWriter(echo string) (string, children.Kind, func(context.Context, client.Object) error) {
	update := func(change func(*appsv1.Deployment)) func(context.Context, client.Object) error {
		return func(ctx context.Context, child client.Object) error {
			return s.Update(ctx, child, func() { change(child.(*appsv1.Deployment)) })
		}
	}
	switch n := s.random.IntN(8); n {
	case 0, 1:
		required := kinds.Required()
		kind := required[n%len(required)]
		s.AllowCreation(kind, echo)
		return "delete the " + kind.Name, kind, func(ctx context.Context, child client.Object) error { return s.Client.Delete(ctx, child) }
	case 2:
		return "scale the Deployment", deployment, update(func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](4) })
	case 3:
		return "change the image of the Deployment", deployment, update(func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = otherImage
		})
	case 4:
		return "remove the label of the Deployment", deployment, update(func(d *appsv1.Deployment) { delete(d.Labels, children.ManagedByLabel) })
	case 5:
		return "change the selector of the Service", service, func(ctx context.Context, child client.Object) error {
			return s.Update(ctx, child, func() { child.(*corev1.Service).Spec.Selector = map[string]string{"app": "other"} })
		}
	case 6:
		return "add a node selector to the Deployment", deployment, update(func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector["disk"] = "ssd" })
	default:
		return "add a label to the Deployment", deployment, update(func(d *appsv1.Deployment) { d.Labels["team"] = "blue" })
	}
}

// serveStale serves the operator the current state for some time.
func (s *scheduler) serveStale(ctx context.Context) error {
	now, err := s.ResourceVersion(ctx)
	if err != nil {
		return err
	}
	resources := staleResources[s.random.IntN(len(staleResources))]
	if err := s.ServeStale(now, resources); err != nil {
		return err
	}
	time.AfterFunc(time.Duration(s.random.IntN(4000))*time.Millisecond, s.Proxy.Resume)
	return nil
}

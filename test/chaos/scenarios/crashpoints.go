package scenarios

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// operation is an operation on the Echo "one".
type operation struct {
	name string
	// before is the spec of the Echo before the operation; nil if there is no Echo.
	before *echov1.EchoSpec
	run    func(context.Context, *harness.Environment) error
	// meanwhile happens before the operator is restarted. It may be nil.
	meanwhile func(context.Context, *harness.Environment) error
	// writes is the number of writes that the operator makes for it. It may skip the write of an
	// intermediate status.
	writes int
}

func editOne(change func(*echov1.EchoSpec)) func(context.Context, *harness.Environment) error {
	return func(ctx context.Context, e *harness.Environment) error { return e.EditEcho(ctx, one, change) }
}

// operationsOnOne returns the operations during which the operator is killed.
func operationsOnOne() []operation {
	all := wanted(everyChild())
	several := wanted(echov1.EchoSpec{Replicas: 3}) - wanted(echov1.EchoSpec{})
	return []operation{
		{"create", nil, func(ctx context.Context, e *harness.Environment) error {
			return e.CreateEcho(ctx, one, everyChild())
		}, nil, all + 4},
		{"edit the message", new(everyChild()), editOne(func(s *echov1.EchoSpec) { s.Message = "n" }), nil, 6},
		{"edit everything", new(everyChild()), editOne(func(s *echov1.EchoSpec) {
			s.Message, s.Replicas, s.Port, s.TargetPort, s.Page = "n", 3, 81, 5679, &echov1.Page{Title: "t"}
			s.Resources.Limits = memoryLimit("32Mi")
			s.StatusCode, s.Pod, s.Route.Hostnames = 503, podSettings(), []string{"b.example"}
		}), nil, all + 6},
		{"scale up", &echov1.EchoSpec{Message: "m"}, editOne(func(s *echov1.EchoSpec) { s.Replicas = 3 }), nil, several + 6},
		{"scale down", &echov1.EchoSpec{Message: "m", Replicas: 3}, editOne(func(s *echov1.EchoSpec) { s.Replicas = 1 }), nil, several + 4},
		{"add a page", &echov1.EchoSpec{Message: "m"}, editOne(func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} }), nil, 5},
		{"remove the page", &echov1.EchoSpec{Message: "m", Page: &echov1.Page{}}, editOne(func(s *echov1.EchoSpec) { s.Page = nil }), nil, 4},
		{"remove the pod settings", &echov1.EchoSpec{Message: "m", Pod: podSettings()}, editOne(func(s *echov1.EchoSpec) { s.Pod = nil }), nil, 4},
		{"add a route", &echov1.EchoSpec{Message: "m"}, editOne(func(s *echov1.EchoSpec) { s.Route = toGateway("public") }), nil, 5},
		{"add a route that is removed meanwhile", &echov1.EchoSpec{Message: "m"}, editOne(func(s *echov1.EchoSpec) { s.Route = toGateway("public") }),
			editOne(func(s *echov1.EchoSpec) { s.Route = nil }), 5},
		{"remove the route", new(everyChild()), editOne(func(s *echov1.EchoSpec) { s.Route = nil }), nil, 4},
		{"add a verification", &echov1.EchoSpec{Message: "m"}, editOne(func(s *echov1.EchoSpec) { s.Verify = &echov1.Verify{} }), nil, 4},
		{"verify from every node", new(withChild(verifier)), editOne(func(s *echov1.EchoSpec) { s.Verify.From = echov1.VerifyFromEveryNode }), nil, 5},
		{"edit the message of a verified Echo", new(withChild(verifier)), editOne(func(s *echov1.EchoSpec) { s.Message = "n" }), nil, 7},
		{"remove the verification", new(withChild(verifier)), editOne(func(s *echov1.EchoSpec) { s.Verify = nil }), nil, 2},
		{"delete", new(everyChild()), func(ctx context.Context, e *harness.Environment) error { return e.DeleteEcho(ctx, one) }, nil, 0},
		{"delete a child", &echov1.EchoSpec{Message: "m"}, func(ctx context.Context, e *harness.Environment) error {
			e.AllowCreation(service, one)
			return e.OnChild(ctx, one, service, func(ctx context.Context, child client.Object) error { return e.Client.Delete(ctx, child) })
		}, nil, 1},
	}
}

// wanted returns how many children an Echo has.
func wanted(spec echov1.EchoSpec) (count int) {
	for _, kind := range children.Kinds {
		if kind.Wanted(&echov1.Echo{Spec: spec}) {
			count++
		}
	}
	return count
}

// crashPoints kills the operator before and after each write of each operation, and immediately. The fixed
// core has each write of three operations once.
func crashPoints(o harness.Options) (all []harness.Scenario, err error) {
	for _, op := range operationsOnOne() {
		core := slices.Contains([]string{"create", "scale down", "remove the route"}, op.name)
		if o.Short && !core {
			continue
		}
		for write := 0; write <= op.writes; write++ {
			if after := write%2 == 0; o.Short {
				all = append(all, crashPoint(op, write, after))
				continue
			}
			if write > 0 {
				all = append(all, crashPoint(op, write, false))
			}
			all = append(all, crashPoint(op, write, true))
		}
	}
	return all, nil
}

func crashPoint(op operation, write int, after bool) harness.Scenario {
	name := fmt.Sprintf("%s, before write %d", op.name, write)
	if after {
		name = fmt.Sprintf("%s, after write %d", op.name, write)
	}
	return harness.Scenario{Name: name, Run: func(ctx context.Context, e *harness.Environment) error {
		if op.before != nil {
			if err := e.CreateEcho(ctx, one, *op.before); err != nil {
				return err
			}
			if err := e.Settle(ctx); err != nil {
				return err
			}
		}
		crashed := make(chan struct{})
		operator := e.Operator
		var seen atomic.Int64
		e.Proxy.SetPlan(plan{request: func(r proxy.Request) proxy.Fault {
			if !r.IsWrite() || seen.Add(1) != int64(write) {
				return proxy.Fault{}
			}
			return proxy.Fault{Reset: !after, DropResponse: after, Then: func() {
				operator.Kill()
				close(crashed)
			}}
		}})
		if err := op.run(ctx, e); err != nil {
			return err
		}
		if write > 0 {
			waiting, stop := context.WithCancel(ctx)
			defer stop()
			select {
			case <-crashed:
			case <-steady(waiting, e):
			}
		}
		e.Proxy.SetPlan(nil)
		if op.meanwhile != nil {
			if err := op.meanwhile(ctx, e); err != nil {
				return err
			}
		}
		if err := e.Restart(); err != nil {
			return err
		}
		return e.Verify(ctx)
	}}
}

// steady returns a channel that is closed when the operation has completed with fewer writes.
func steady(ctx context.Context, e *harness.Environment) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Settle(ctx) // Verify reports what is wrong.
		harness.Pause(ctx, harness.SteadyPeriod)
	}()
	return done
}

package main

import (
	"context"
	"fmt"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// step is an operation on the Echo "one", and what it begins with.
type step struct {
	name   string
	before *echov1.EchoSpec
	do     func(context.Context, *world) error
	// writes is how many writes the operator makes of it; where a status is skipped, it is
	// one fewer.
	writes int
}

const one = "one"

func editing(change func(*echov1.EchoSpec)) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error { return w.editEcho(ctx, one, change) }
}

// steps are the operations at whose writes the operator dies.
func steps() []step {
	return []step{
		{"create", nil, func(ctx context.Context, w *world) error {
			return w.createEcho(ctx, one, echov1.EchoSpec{Message: "m", Replicas: 2})
		}, 6},
		{"edit the message", &echov1.EchoSpec{Message: "m", Replicas: 2}, editing(func(s *echov1.EchoSpec) { s.Message = "n" }), 6},
		{"edit everything", &echov1.EchoSpec{Message: "m", Replicas: 2}, editing(func(s *echov1.EchoSpec) {
			s.Message, s.Replicas, s.Port, s.TargetPort, s.Page = "n", 3, 81, 5679, &echov1.Page{Title: "t"}
			s.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
		}), 8},
		{"scale up", &echov1.EchoSpec{Message: "m"}, editing(func(s *echov1.EchoSpec) { s.Replicas = 3 }), 7},
		{"scale down", &echov1.EchoSpec{Message: "m", Replicas: 3}, editing(func(s *echov1.EchoSpec) { s.Replicas = 1 }), 5},
		{"page on", &echov1.EchoSpec{Message: "m"}, editing(func(s *echov1.EchoSpec) { s.Page = &echov1.Page{} }), 5},
		{"page off", &echov1.EchoSpec{Message: "m", Page: &echov1.Page{}}, editing(func(s *echov1.EchoSpec) { s.Page = nil }), 4},
		{"delete", &echov1.EchoSpec{Message: "m", Replicas: 2}, func(ctx context.Context, w *world) error { return w.deleteEcho(ctx, one) }, 0},
		{"delete a child", &echov1.EchoSpec{Message: "m"}, func(ctx context.Context, w *world) error {
			w.expectedUIDs["Service echo-"+one]++
			return w.onChild(ctx, one, service, func(ctx context.Context, child client.Object) error { return w.plane.Client.Delete(ctx, child) })
		}, 1},
	}
}

// crashPoints kill the operator before and after each write of each operation, and at once.
func crashPoints(_ context.Context, o options) (all []scenario, err error) {
	for i, s := range steps() {
		all = append(all, crashPoint(s, 0, true))
		for write := 1; write <= s.writes; write++ {
			// In the short form half of them, each write once.
			if !o.short || (i+write)%2 == 0 {
				all = append(all, crashPoint(s, write, false))
			}
			if !o.short || (i+write)%2 == 1 {
				all = append(all, crashPoint(s, write, true))
			}
		}
	}
	return all, nil
}

func crashPoint(s step, write int, after bool) scenario {
	name := fmt.Sprintf("%s, before write %d", s.name, write)
	if after {
		name = fmt.Sprintf("%s, after write %d", s.name, write)
	}
	return scenario{name: name, run: func(ctx context.Context, w *world) error {
		if s.before != nil {
			if err := w.createEcho(ctx, one, *s.before); err != nil {
				return err
			}
			if err := w.settle(ctx); err != nil {
				return err
			}
		}
		crashed := make(chan struct{})
		operator := w.operator
		w.proxy.SetPlan(&crashPlan{write: int64(write), after: after, crash: func() {
			operator.Kill()
			close(crashed)
		}})
		if err := s.do(ctx, w); err != nil {
			return err
		}
		if write > 0 {
			waiting, stop := context.WithCancel(ctx)
			defer stop()
			select {
			case <-crashed:
			case <-quiet(waiting, w):
			}
		}
		w.proxy.SetPlan(nil)
		if err := w.restart(); err != nil {
			return err
		}
		return w.verify(ctx)
	}}
}

// quiet is closed when the operation is over without so many writes.
func quiet(ctx context.Context, w *world) <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = w.settle(ctx) // The oracle tells of what is wrong.
		pause(ctx, silence)
	}()
	return over
}

// crashPlan kills the operator at one write.
type crashPlan struct {
	write int64
	after bool
	crash func()
	seen  atomic.Int64
}

// Request implements proxy.Plan.
func (p *crashPlan) Request(r proxy.Request) proxy.Fault {
	if !r.IsWrite() || p.seen.Add(1) != p.write {
		return proxy.Fault{}
	}
	return proxy.Fault{Reset: !p.after, LoseAnswer: p.after, Then: p.crash}
}

// Event implements proxy.Plan.
func (p *crashPlan) Event(proxy.Request) proxy.EventFault { return proxy.Deliver }

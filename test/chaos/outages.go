package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

const (
	// recovery is how soon everything has to have converged after the end of an outage: the
	// operator has done its part.
	recovery = time.Minute
	// rollout is what the controller manager is given beyond that to replace the pods of one of
	// hundreds of Echoes.
	rollout = recovery / 250
)

// outage is how long things are away, and how many Echoes there are.
type outage struct {
	short, long time.Duration
	echoes      int
}

// outages are scenarios in which something that the operator needs is away.
func outages(_ context.Context, o options) ([]scenario, error) {
	size := outage{short: 45 * time.Second, long: 3 * time.Minute, echoes: 500}
	if o.short {
		size = outage{short: 6 * time.Second, long: 10 * time.Second, echoes: 20}
	}
	all := []scenario{
		{name: "API server away", run: size.noServer},
		{name: "rights to Services away", run: size.noRightsToServices},
		{name: "CRD away", run: size.noCRD},
		{name: "API server away from an elected leader", run: size.noServerForLeader},
		{name: "API server away at the start", run: size.noServerAtStart},
		{name: "rights away", run: size.noRights},
		{name: "CRD absent at the start", run: size.noCRDAtStart},
		{name: "a namespace that ends", run: size.endingNamespace},
	}
	if o.short {
		all = all[:3]
	}
	return all, nil
}

// createEchoes creates as many as there have to be, and waits for them.
func (o outage) createEchoes(ctx context.Context, w *world) error {
	if err := o.each(ctx, 0, o.echoes, func(ctx context.Context, name string) error {
		return w.createEcho(ctx, name, echov1.EchoSpec{Message: "first"})
	}); err != nil {
		return err
	}
	return w.awaitReady(ctx, 5*time.Minute)
}

// editEchoes edits those of them from one number to another.
func (o outage) editEchoes(ctx context.Context, w *world, from, to int, message string) error {
	return o.each(ctx, from, to, func(ctx context.Context, name string) error {
		return w.editEcho(ctx, name, func(s *echov1.EchoSpec) { s.Message = message })
	})
}

// each does something with each Echo, some at a time.
func (o outage) each(ctx context.Context, from, to int, do func(context.Context, string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := from; i < to; i++ {
		group.Go(func() error { return do(ctx, fmt.Sprintf("echo-%d", i)) })
	}
	return group.Wait()
}

// measured keeps a figure, and fails where it is beyond what is allowed.
func (w *world) measured(what string, took, allowed time.Duration) error {
	w.figures = append(w.figures, figure{What: what, Seconds: took.Seconds(), Allowed: allowed.Seconds()})
	if took > allowed {
		return fmt.Errorf("%s: after %s, allowed are %s", what, took, allowed)
	}
	return nil
}

// awaitReady waits until every Echo under fire is ready.
func (w *world) awaitReady(ctx context.Context, timeout time.Duration) error {
	return w.await(ctx, timeout, "every Echo is ready", w.ready(w.fire))
}

// ready returns a check that the newest spec of every Echo in the namespace serves, and says so.
func (w *world) ready(namespace string) func(context.Context) error {
	return w.all(namespace, "ready", func(echo *echov1.Echo) bool {
		ready := meta.FindStatusCondition(echo.Status.Conditions, echov1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == echo.Generation
	})
}

// converged returns a check that the operator has written what every Echo under fire asks for.
func (w *world) converged() func(context.Context) error {
	return w.all(w.fire, "converged", func(echo *echov1.Echo) bool { return echo.Status.ObservedGeneration == echo.Generation })
}

// all returns a check of every Echo in the namespace. It asks for one that was late until it is
// not: to list hundreds again and again would load the API server that is to recover.
func (w *world) all(namespace, what string, is func(*echov1.Echo) bool) func(context.Context) error {
	var late client.ObjectKey
	return func(ctx context.Context) error {
		if late.Name != "" {
			var echo echov1.Echo
			err := w.plane.Client.Get(ctx, late, &echo)
			if client.IgnoreNotFound(err) != nil {
				return err
			}
			if err == nil && !is(&echo) {
				return fmt.Errorf("echo %s is not %s", late.Name, what)
			}
		}
		var echoes echov1.EchoList
		if err := w.plane.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
			return err
		}
		for _, echo := range slices.Backward(echoes.Items) {
			if !is(&echo) {
				late = client.ObjectKeyFromObject(&echo)
				return fmt.Errorf("echo %s is not %s", late.Name, what)
			}
		}
		return nil
	}
}

// recovers measures how long it takes until every Echo is ready.
func (w *world) recovers(ctx context.Context, what string, since time.Time, allowed time.Duration) error {
	return w.recoversTo(ctx, w.ready(w.fire), what, since, allowed)
}

// recoversTo measures how long it takes until all is well.
func (w *world) recoversTo(ctx context.Context, well func(context.Context) error, what string, since time.Time, allowed time.Duration) error {
	if err := w.await(ctx, 2*allowed, what, well); err != nil {
		return err
	}
	return w.measured(what, time.Since(since), allowed)
}

// withoutServer takes the API server away for a while. The operator of the world in peace stays
// away: there were no outages in its world, and the time until all is well is not to be its, too.
func (w *world) withoutServer(ctx context.Context, d time.Duration) (back time.Time, err error) {
	w.reference.Kill()
	if err := w.plane.StopAPIServer(ctx); err != nil {
		return back, err
	}
	pause(ctx, d)
	err = w.plane.StartAPIServer(ctx)
	return time.Now(), err
}

// noServer takes the API server away; the operator has to live on.
func (o outage) noServer(ctx context.Context, w *world) error {
	if err := o.surviveServer(ctx, w, ""); err != nil {
		return err
	}
	return w.verify(ctx)
}

// surviveServer takes the API server away between the edits of one part of the Echoes and of
// the others, and measures how soon after its return all have converged, and are ready.
func (o outage) surviveServer(ctx context.Context, w *world, whose string) error {
	if err := o.createEchoes(ctx, w); err != nil {
		return err
	}
	third := o.echoes / 3
	if err := o.editEchoes(ctx, w, 0, third, "edited right before"); err != nil {
		return err
	}
	back, err := w.withoutServer(ctx, o.long)
	if err != nil {
		return err
	}
	if err := o.editEchoes(ctx, w, third, 2*third, "edited right after"); err != nil {
		return err
	}
	// What the operator says until then cannot be judged.
	if err := w.await(ctx, recovery, "what happens is recorded again", w.history.isRecorded); err != nil {
		return err
	}
	if err := o.editEchoes(ctx, w, 2*third, o.echoes, "edited later"); err != nil {
		return err
	}
	what := fmt.Sprintf("%d Echoes%s after %s without API server: ", o.echoes, whose, o.long)
	return errors.Join(
		w.recoversTo(ctx, w.converged(), what+"converged", back, recovery),
		w.recovers(ctx, what+"ready", back, recovery+time.Duration(o.echoes)*rollout),
		w.restartReference())
}

// noServerForLeader does so to an operator with a lease, which it loses: it ends, and
// whoever runs it runs it again.
func (o outage) noServerForLeader(ctx context.Context, w *world) error {
	w.operator.Kill()
	w.args = []string{"--leader-elect"}
	if err := w.grantLease(ctx); err != nil {
		return err
	}
	kubelet := w.supervise(ctx)
	defer kubelet.stop()
	if err := o.surviveServer(ctx, w, " of an elected leader"); err != nil {
		return fmt.Errorf("%w; it was started %d times", err, kubelet.starts.Load())
	}
	if starts := kubelet.starts.Load(); starts > 2 {
		return fmt.Errorf("the operator was started %d times: once more is what the loss of its lease costs", starts)
	}
	kubelet.stop()
	w.restarts++
	return w.verify(ctx)
}

// supervisor starts an operator again when it ends, as the kubelet does.
type supervisor struct {
	starts atomic.Int64
	cancel context.CancelFunc
	done   chan struct{}
}

// supervise runs the world's operator.
func (w *world) supervise(ctx context.Context) *supervisor {
	ctx, cancel := context.WithCancel(ctx)
	s := &supervisor{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		const first, most = 10 * time.Second, 5 * time.Minute // The kubelet's.
		for wait := time.Duration(0); ctx.Err() == nil; wait = min(max(first, 2*wait), most) {
			pause(ctx, wait)
			operator, err := startOperator(w.program, w.directory, w.proxy, []string{w.fire}, w.args...)
			if err != nil {
				return // The Echoes do not become ready.
			}
			s.starts.Add(1)
			select {
			case <-operator.Done:
			case <-ctx.Done():
				operator.Kill()
			}
		}
	}()
	return s
}

func (s *supervisor) stop() {
	s.cancel()
	<-s.done
}

// noServerAtStart starts the operator before its API server.
func (o outage) noServerAtStart(ctx context.Context, w *world) error {
	if err := w.createEcho(ctx, one, echov1.EchoSpec{Message: "m"}); err != nil {
		return err
	}
	if err := w.settle(ctx); err != nil {
		return err
	}
	w.operator.Kill()
	if err := w.editEcho(ctx, one, func(s *echov1.EchoSpec) { s.Message = "n" }); err != nil {
		return err
	}
	if err := w.plane.StopAPIServer(ctx); err != nil {
		return err
	}
	if err := w.restart(); err != nil {
		return err
	}
	pause(ctx, o.long)
	failed := w.operator.Failed()
	if err := errors.Join(w.plane.StartAPIServer(ctx), failed); err != nil {
		return err
	}
	what := fmt.Sprintf("an operator started %s before its API server has acted", o.long)
	if err := errors.Join(w.recovers(ctx, what, time.Now(), recovery), w.restartReference()); err != nil {
		return err
	}
	return w.verify(ctx)
}

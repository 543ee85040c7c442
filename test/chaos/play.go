package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// scenario is one thing that happens to an operator. It starts with an empty namespace and a
// running operator, and ends with the oracle.
type scenario struct {
	name string
	run  func(context.Context, *world) error
}

// convergence is what is promised: so long after the last fault everything is well again.
const convergence = time.Minute

// tellEvery is how often a part says how far it is.
const tellEvery = time.Minute

// newBed starts what the campaign needs.
func newBed(ctx context.Context, o options, directory string) (*bed, error) {
	bin, err := absolute(o.root, "bin")
	if err != nil {
		return nil, err
	}
	fmt.Println("Starting etcd, kube-apiserver and kube-controller-manager ...")
	b := &bed{root: o.root, program: filepath.Join(bin, "manager"), directory: directory, convergence: convergence}
	if b.plane, err = controlplane.Start(ctx, controlplane.Options{Root: o.root, Bin: bin, Logs: directory}); err != nil {
		return nil, err
	}
	if err := b.furnish(ctx, o); err != nil {
		return nil, errors.Join(err, b.stop(ctx))
	}
	return b, nil
}

// furnish makes users, namespaces, and the operator of the world in peace.
func (b *bed) furnish(ctx context.Context, o options) (err error) {
	if b.user, err = b.plane.AddUser(ctx, operatorUser, filepath.Join(o.root, "config", "rbac", "role.yaml")); err != nil {
		return err
	}
	for i := range o.workers {
		b.peaceful = append(b.peaceful, peaceNamespace(i))
		for _, name := range []string{fireNamespace(i), peaceNamespace(i)} {
			if err := b.plane.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
			}}); err != nil {
				return err
			}
		}
	}
	if b.peace, err = proxy.New(b.user); err != nil {
		return err
	}
	return b.restartReference()
}

// restartReference starts the operator of the world in peace, anew where it runs.
func (b *bed) restartReference() (err error) {
	if b.reference != nil {
		b.reference.Kill()
	}
	b.reference, err = startOperator(b.program, b.directory, b.peace, b.peaceful)
	return err
}

func (b *bed) stop(ctx context.Context) error {
	if b.reference != nil {
		b.reference.Kill()
	}
	if b.peace != nil {
		b.peace.Close()
	}
	return b.plane.Stop(ctx)
}

// playing is a part that is being played.
type playing struct {
	part      part
	ctx       context.Context // Ends where a planted bug is caught.
	stop      context.CancelFunc
	scenarios []scenario
	start     time.Time
	result    partResult
}

// next is a scenario whose turn it is.
type next struct {
	scenario
	of *playing
}

// play runs the scenarios of parts, some at a time, each in a world of its own.
func (b *bed) play(ctx context.Context, chosen []part, o options, program string) (results []partResult, err error) {
	var all []*playing
	for _, p := range chosen {
		scenarios, err := p.scenarios(ctx, o)
		if err != nil {
			return nil, err
		}
		scenarios = slices.DeleteFunc(scenarios, func(s scenario) bool { return !strings.Contains(s.name, o.scenario) })
		playing := &playing{part: p, scenarios: scenarios, result: partResult{Part: p.name, Faults: map[string]int{}}}
		playing.ctx, playing.stop = context.WithCancel(ctx)
		defer playing.stop()
		if p.alone {
			o.workers = 1
		}
		all = append(all, playing)
	}
	var (
		told  = time.Now()
		mu    sync.Mutex
		group sync.WaitGroup
		queue = make(chan next)
	)
	for number := range o.workers {
		group.Go(func() {
			for s := range queue {
				outcome := b.playOne(s.of.ctx, s.scenario, number, program)
				mu.Lock()
				s.of.add(outcome, o.mutants)
				if now := time.Now(); now.Sub(told) > tellEvery {
					told = now
					s.of.tell(now)
				}
				mu.Unlock()
			}
		})
	}
	for _, p := range all {
		p.start = time.Now()
		for _, s := range p.scenarios {
			if p.ctx.Err() == nil {
				queue <- next{s, p}
			}
		}
	}
	close(queue)
	group.Wait()
	for _, p := range all {
		results = append(results, p.result)
	}
	return results, ctx.Err()
}

// add keeps what became of a scenario. A hunt for mutants needs one failure, and stops then.
func (p *playing) add(o outcome, mutants bool) {
	if p.ctx.Err() != nil {
		return
	}
	p.result.add(o, !mutants)
	p.result.Seconds = time.Since(p.start).Seconds()
	if p.result.Failed > 0 && mutants {
		p.stop()
	}
}

// tell says how far the part is.
func (p *playing) tell(now time.Time) {
	fmt.Printf("%s %s: %d of %d, %d failed\n", now.Format(time.TimeOnly), p.part.name, p.result.Scenarios, len(p.scenarios), p.result.Failed)
}

// outcome is what became of a scenario.
type outcome struct {
	name     string
	err      error
	faults   map[string]int
	restarts int
	figures  []figure
}

func (b *bed) playOne(ctx context.Context, s scenario, number int, program string) outcome {
	w, err := b.newWorld(ctx, number, program)
	if err != nil {
		return outcome{name: s.name, err: err}
	}
	if err = w.start(); err == nil {
		err = s.run(ctx, w)
	}
	if err != nil {
		err = fmt.Errorf("%w\nlogs: %s", err, strings.Join(w.logs, " "))
	}
	o := outcome{name: s.name, faults: w.proxy.Faults(), restarts: w.restarts, figures: w.figures}
	o.err = errors.Join(err, w.end(context.WithoutCancel(ctx)))
	return o
}

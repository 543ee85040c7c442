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
	"github.com/kkloud-io/echo-operator/test/controlplane"
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

// play runs the scenarios of a part, some at a time, each in a world of its own.
func (b *bed) play(ctx context.Context, p part, o options, program string) (partResult, error) {
	scenarios, err := p.scenarios(ctx, o)
	if err != nil {
		return partResult{}, err
	}
	scenarios = slices.DeleteFunc(scenarios, func(s scenario) bool { return !strings.Contains(s.name, o.scenario) })
	if p.alone {
		o.workers = 1
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	var (
		start  = time.Now()
		told   = start
		mu     sync.Mutex
		group  sync.WaitGroup
		queue  = make(chan scenario)
		result = partResult{Part: p.name, Faults: map[string]int{}}
	)
	for number := range o.workers {
		group.Go(func() {
			for s := range queue {
				outcome := b.playOne(playing, s, number, program)
				mu.Lock()
				if playing.Err() == nil {
					result.add(outcome, !o.mutants)
				}
				if now := time.Now(); now.Sub(told) > tellEvery {
					told = now
					fmt.Printf("%s %d of %d, %d failed\n", now.Format(time.TimeOnly), result.Scenarios, len(scenarios), result.Failed)
				}
				if result.Failed > 0 && o.mutants {
					stop() // It is caught.
				}
				mu.Unlock()
			}
		})
	}
	for _, s := range scenarios {
		if playing.Err() == nil {
			queue <- s
		}
	}
	close(queue)
	group.Wait()
	result.Seconds = time.Since(start).Seconds()
	return result, ctx.Err()
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

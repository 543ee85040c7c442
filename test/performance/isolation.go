package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// newEchoSamples is the number of new Echoes in each turn of the measurement of isolation.
const newEchoSamples = 12

// measureIsolation measures how long a new Echo takes while a tenant edits all its Echoes.
func (o options) measureIsolation(ctx context.Context, e *environment, r *report) error {
	sizes := []int{min(2000, o.largestSize())}
	if o.full() {
		sizes = append(sizes, 10_000)
	}
	for _, n := range sizes {
		var longest, writes []time.Duration
		for turn := range o.turns {
			echo, client, err := e.newEchoesBesideEdits(ctx, n)
			if err != nil {
				return fmt.Errorf("new Echoes beside edits of %d, turn %d: %w", n, turn+1, err)
			}
			i := slices.Index(echo, slices.Max(echo))
			progress("  new Echoes while another namespace edits %d, turn %d of %d: the longest %.2g s, the same writes of a client %.2g s",
				n, turn+1, o.turns, echo[i].Seconds(), client[i].Seconds())
			longest, writes = append(longest, echo[i]), append(writes, client[i])
		}
		r.add(newRatioResult(fmt.Sprintf("longest of %d new Echoes while another namespace edits %d", newEchoSamples, n), longest, writes, new(3.0)))
	}
	return nil
}

// newEchoesBesideEdits creates Echoes one after the other while all n Echoes of another namespace are edited, again and
// again. It returns how long each took to converge, and how long a client took for the same writes at that moment.
func (e *environment) newEchoesBesideEdits(ctx context.Context, n int) (echo, writes []time.Duration, err error) {
	crowd, echoes, err := e.createNamespaceWithEchoes(ctx, n)
	if err != nil {
		return nil, nil, err
	}
	var others [2]string // Of the operator, and of the baseline client.
	for i := range others {
		if others[i], err = e.createNamespace(ctx); err != nil {
			return nil, nil, err
		}
	}
	operator, err := controlplane.StartOperator(controlplane.OperatorOptions{
		Program: e.program, Directory: e.directory, Config: e.operatorConfig,
		Watched: []string{crowd, others[0]}, Namespace: metav1.NamespaceDefault, Args: []string{"--metrics-bind-address=0"},
	})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		err = errors.Join(err, operator.Terminate(), e.deleteEchoes(ctx, crowd), e.deleteEchoes(ctx, others[0]), e.deleteEchoes(ctx, others[1]))
	}()
	if err := e.awaitEchoes(ctx, crowd, operator, isConverged); err != nil {
		return nil, nil, err
	}
	editing, stop := context.WithCancel(ctx)
	defer stop()
	var edits errgroup.Group
	edits.Go(func() error {
		for round := 0; editing.Err() == nil; round++ {
			err := e.editEchoes(editing, echoes, func(spec *echov1.EchoSpec) { spec.Message = fmt.Sprint("edit ", round) })
			if err != nil && editing.Err() == nil {
				return err
			}
		}
		return nil
	})
	for i := range newEchoSamples {
		if err := sleep(ctx, time.Second); err != nil {
			return nil, nil, err
		}
		took, err := e.timeNewEcho(ctx, others[0], fmt.Sprint("new-", i))
		if err != nil {
			return nil, nil, err
		}
		echo = append(echo, took)
		if took, err = e.timeSameWrites(ctx, others[1], fmt.Sprint("new-", i)); err != nil {
			return nil, nil, err
		}
		writes = append(writes, took)
	}
	stop()
	return echo, writes, edits.Wait()
}

// timeNewEcho returns the time from the creation of an Echo until the operator has written its status.
func (e *environment) timeNewEcho(ctx context.Context, namespace, name string) (time.Duration, error) {
	echo := newEcho(namespace, name)
	echo.Spec.Replicas = 1
	begin := time.Now()
	if err := e.controlPlane.Client.Create(ctx, echo); err != nil {
		return 0, err
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		err := e.controlPlane.Client.Get(ctx, client.ObjectKeyFromObject(echo), echo)
		return isConverged(echo), err
	})
	return time.Since(begin), err
}

// timeSameWrites returns how long a client takes to create an Echo and to write what the operator writes for it.
func (e *environment) timeSameWrites(ctx context.Context, namespace, name string) (time.Duration, error) {
	echo := newEcho(namespace, name)
	echo.Spec.Replicas = 1
	begin := time.Now()
	if err := e.controlPlane.Client.Create(ctx, echo); err != nil {
		return 0, err
	}
	_, err := e.createChildren(ctx, []*echov1.Echo{echo}, 1)
	return time.Since(begin), err
}

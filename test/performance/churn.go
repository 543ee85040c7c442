package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

// churn changes the messages of n Echoes in turn, with a constant number of changes a second. It
// returns the sorted times from the requests until the Echoes have converged.
func (e *environment) churn(ctx context.Context, n int, duration time.Duration) (latencies []time.Duration, err error) {
	namespace, echoes, operator, err := e.startOperatorOnNewEchoes(ctx, n)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), e.deleteEchoes(ctx, namespace)) }()
	watch, err := e.controlPlane.Client.Watch(ctx, &echov1.EchoList{}, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	statuses := &statusLog{observed: map[string][]generationAt{}}
	go statuses.record(watch)

	changes := make([]change, changeRate*int(duration.Seconds()))
	group, groupCtx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / changeRate)
	defer tick.Stop()
	for i := range changes {
		select {
		case <-groupCtx.Done():
			return nil, errors.Join(group.Wait(), groupCtx.Err())
		case <-tick.C:
		}
		group.Go(func() error {
			echo := newEcho(namespace, echoes[i%len(echoes)].Name)
			begin := time.Now()
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"message":"change %d"}}`, i))
			err := e.controlPlane.Client.Patch(groupCtx, echo, patch)
			changes[i] = change{echo: echo.Name, generationAt: generationAt{echo.Generation, begin}}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second, timeout, true, func(context.Context) (bool, error) {
		latencies = statuses.latencies(changes)
		return len(latencies) == len(changes), nil
	})
	if err != nil {
		return nil, fmt.Errorf("%d of %d changes have converged: %w", len(latencies), len(changes), err)
	}
	slices.Sort(latencies)
	return latencies, nil
}

// generationAt is a generation of an Echo, and when it was requested or observed.
type generationAt struct {
	generation int64
	at         time.Time
}

type change struct {
	echo string
	generationAt
}

// statusLog records when the status of each Echo was of which generation.
type statusLog struct {
	mu       sync.Mutex
	observed map[string][]generationAt
}

// record records every status until the watch ends.
func (l *statusLog) record(w watch.Interface) {
	for event := range w.ResultChan() {
		if echo, ok := event.Object.(*echov1.Echo); ok {
			l.mu.Lock()
			l.observed[echo.Name] = append(l.observed[echo.Name], generationAt{echo.Status.ObservedGeneration, time.Now()})
			l.mu.Unlock()
		}
	}
}

// latencies returns how long each change that has converged took. A change that the next change of
// the same Echo replaced converges with the next one.
func (l *statusLog) latencies(changes []change) (latencies []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		observed := l.observed[c.echo]
		if i := slices.IndexFunc(observed, func(o generationAt) bool { return o.generation >= c.generation }); i >= 0 {
			latencies = append(latencies, observed[i].at.Sub(c.at))
		}
	}
	return latencies
}

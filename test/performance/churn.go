package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// churnLatency has the p99 latencies of changes at a constant rate.
type churnLatency struct {
	// converged is from the request that changes an Echo until the Echo has converged.
	converged time.Duration
	// queued is an upper bound of the wait in the queue: the metric has coarse buckets.
	queued time.Duration
}

// churn changes the messages of n Echoes in turn, with a constant number of changes a second.
func (e *environment) churn(ctx context.Context, n, rate int, duration time.Duration) (c churnLatency, err error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return c, err
	}
	namespace, echoes, operator, err := e.startOperatorOnNewEchoes(ctx, n, "--metrics-bind-address=127.0.0.1:"+port)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, operator.Terminate(), e.deleteEchoes(ctx, namespace)) }()
	scraper, err := e.newScraper(ctx, namespace, port)
	if err != nil {
		return c, err
	}
	before, err := scraper.queueDuration(ctx)
	if err != nil {
		return c, err
	}
	latencies, err := e.changeEchoes(ctx, namespace, echoes, rate, duration)
	if err != nil {
		return c, err
	}
	after, err := scraper.queueDuration(ctx)
	if err != nil {
		return c, err
	}
	slices.Sort(latencies)
	return churnLatency{converged: latencies[len(latencies)*99/100], queued: quantile(before, after, 0.99)}, nil
}

// changeEchoes changes the Echoes in turn, and returns how long each change took to converge.
func (e *environment) changeEchoes(ctx context.Context, namespace string, echoes []*echov1.Echo, rate int, duration time.Duration) ([]time.Duration, error) {
	ctx, stop := context.WithTimeout(ctx, duration+timeout)
	defer stop()
	watch, err := e.watchEchoes(ctx, namespace)
	if err != nil {
		return nil, err
	}
	log := newChangeLog()
	go log.recordObserved(watch)
	defer watch.Stop()

	group, groupCtx := errgroup.WithContext(ctx)
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := range rate * int(duration.Seconds()) {
		select {
		case <-groupCtx.Done():
			return nil, errors.Join(group.Wait(), groupCtx.Err())
		case <-tick.C:
		}
		group.Go(func() error {
			echo := &echov1.Echo{ObjectMeta: *echoes[i%len(echoes)].ObjectMeta.DeepCopy()}
			echo.ResourceVersion = ""
			begin := time.Now()
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"message":"change %d"}}`, i))
			if err := e.controlPlane.Client.Patch(groupCtx, echo, patch); err != nil {
				return err
			}
			log.recordChange(echo, begin)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return log.await(ctx)
}

// watchEchoes watches the Echoes of a namespace, and restarts the watch if an overloaded API
// server closes it.
func (e *environment) watchEchoes(ctx context.Context, namespace string) (watch.Interface, error) {
	var echoes echov1.EchoList
	if err := e.controlPlane.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	return watchtools.NewRetryWatcherWithContext(ctx, echoes.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return e.controlPlane.Client.Watch(ctx, &echov1.EchoList{}, client.InNamespace(namespace), &client.ListOptions{Raw: &options})
		},
	})
}

// changeLog records when a generation of an Echo was requested, and when its status was observed.
type changeLog struct {
	mu                  sync.Mutex
	requested, observed map[echoGeneration]time.Time
}

type echoGeneration struct {
	name       string
	generation int64
}

func newChangeLog() *changeLog {
	return &changeLog{requested: map[echoGeneration]time.Time{}, observed: map[echoGeneration]time.Time{}}
}

func (l *changeLog) recordChange(echo *echov1.Echo, begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requested[echoGeneration{echo.Name, echo.Generation}] = begin
}

// recordObserved records every status until the watch ends.
func (l *changeLog) recordObserved(w watch.Interface) {
	for event := range w.ResultChan() {
		echo, ok := event.Object.(*echov1.Echo)
		if !ok {
			continue
		}
		now, key := time.Now(), echoGeneration{echo.Name, echo.Status.ObservedGeneration}
		l.mu.Lock()
		if _, known := l.observed[key]; !known {
			l.observed[key] = now
		}
		l.mu.Unlock()
	}
}

// await waits until every change has converged, and returns how long each change took.
func (l *changeLog) await(ctx context.Context) (latencies []time.Duration, err error) {
	missing := 0
	err = wait.PollUntilContextCancel(ctx, time.Second, true, func(context.Context) (bool, error) {
		latencies, missing = l.latencies()
		return missing == 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%d changes have not converged: %w", missing, err)
	}
	return latencies, nil
}

// latencies returns how long each change took to converge, and how many have not converged. A
// change that the next change of the same Echo replaced converges with the next one.
func (l *changeLog) latencies() (latencies []time.Duration, missing int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for change, begin := range l.requested {
		for {
			if observed, ok := l.observed[change]; ok {
				latencies = append(latencies, observed.Sub(begin))
				break
			}
			change.generation++
			if _, replaced := l.requested[change]; !replaced {
				missing++
				break
			}
		}
	}
	return latencies, missing
}

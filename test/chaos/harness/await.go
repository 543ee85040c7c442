package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
	"github.com/kkloud-io/echo-operator/test/chaos/oracle"
	"github.com/kkloud-io/echo-operator/test/chaos/proxy"
)

// Await waits until the condition is true or the operator exits unexpectedly. The error is that the
// condition is not true, for example "Echo one is ready: not true after 60s: ...", and why.
func (e *Environment) Await(ctx context.Context, timeout time.Duration, condition string, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil { // The error of an interrupted check is not meaningful.
			last = err
		}
		return err == nil, e.Operator.Failed()
	})
	if err == nil {
		return nil
	}
	if last == nil || !wait.Interrupted(err) {
		last = errors.Join(err, last)
	}
	return fmt.Errorf("%s: not true after %gs: %w", condition, timeout.Seconds(), last)
}

// AwaitWatches waits until the operator behind the proxy has all its watches.
func (e *Environment) AwaitWatches(ctx context.Context, timeout time.Duration, p *proxy.Proxy, failed func() error) error {
	want := len(kinds.Watched())
	return e.Await(ctx, timeout, "operator watches all resources", func(context.Context) error {
		if n := p.Watches(); n < want {
			return fmt.Errorf("operator: %d of %d watches are open", n, want)
		}
		return failed()
	})
}

// AwaitStart waits until the subject's operator has all its watches.
func (e *Environment) AwaitStart(ctx context.Context) error {
	return e.AwaitWatches(ctx, ConvergenceTimeout, e.Proxy, e.Operator.Failed)
}

// AwaitRecording waits until the history is recorded again after the API server was unavailable.
func (e *Environment) AwaitRecording(ctx context.Context, timeout time.Duration) error {
	return e.Await(ctx, timeout, "history is recorded", e.recorder.isRecording)
}

// AwaitEcho waits until an Echo passes the check.
func (e *Environment) AwaitEcho(ctx context.Context, timeout time.Duration, namespace, name, condition string, check func(*echov1.Echo) error) error {
	return e.Await(ctx, timeout, fmt.Sprintf("Echo %s/%s %s", namespace, name, condition), func(ctx context.Context) error {
		echo, err := e.GetEcho(ctx, namespace, name)
		if err != nil {
			return err
		}
		return check(echo)
	})
}

// AwaitCondition waits until the condition of the subject's Echo has the reason.
func (e *Environment) AwaitCondition(ctx context.Context, name, conditionType, reason string) error {
	return e.AwaitEcho(ctx, ConvergenceTimeout, e.Subject, name, "has condition "+conditionType+" with reason "+reason, func(echo *echov1.Echo) error {
		return oracle.CheckCondition(echo, conditionType, reason)
	})
}

// AwaitReady waits until the newest spec of the subject's Echo is ready.
func (e *Environment) AwaitReady(ctx context.Context, name string) error {
	return e.AwaitCondition(ctx, name, echov1.ConditionReady, echov1.ReasonReady)
}

// AwaitDegraded waits until the newest spec of an Echo is degraded, with the reason and the text.
func (e *Environment) AwaitDegraded(ctx context.Context, timeout time.Duration, namespace, name, reason, text string) error {
	return e.AwaitEcho(ctx, timeout, namespace, name, "is degraded with reason "+reason, func(echo *echov1.Echo) error {
		return oracle.CheckDegraded(echo, reason, text)
	})
}

// AllReady returns a check that the newest spec of every Echo in the namespace is ready.
func (h *Harness) AllReady(namespace string) func(context.Context) error {
	return h.AllEchoes(namespace, oracle.CheckReadyNow)
}

// AllObserved returns a check that every Echo in the namespace has a status for its newest spec.
func (h *Harness) AllObserved(namespace string) func(context.Context) error {
	return h.AllEchoes(namespace, oracle.CheckObserved)
}

// AllEchoes returns a check of every Echo in the namespace.
func (h *Harness) AllEchoes(namespace string, check func(*echov1.Echo) error) func(context.Context) error {
	return func(ctx context.Context) error {
		var echoes echov1.EchoList
		if err := h.Client.List(ctx, &echoes, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range echoes.Items {
			if err := check(&echoes.Items[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

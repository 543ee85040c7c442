package informers

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// responses are the results of lists, of which the last one repeats.
type responses struct {
	client.Reader
	next []error
}

func (r *responses) List(context.Context, client.ObjectList, ...client.ListOption) error {
	err := r.next[0]
	r.next = r.next[min(1, len(r.next)-1):]
	return err
}

type noQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// The result of a probe counts for a period, and a failure that passes with the next probe is not reported.
func TestOptionalReportsWhatLasts(t *testing.T) {
	type check struct {
		after time.Duration
		want  error
	}
	const start, next = time.Second, 2*responseTimeout - time.Second
	for name, test := range map[string]struct {
		probes []error
		checks []check
	}{
		"not served":         {[]error{notServed}, []check{{start, ErrNotServed}, {DiscoveryPeriod, ErrNotServed}}},
		"forbidden":          {[]error{forbidden}, []check{{start, forbidden}, {DiscoveryPeriod, forbidden}}},
		"one failure":        {[]error{errUnreachable, notServed}, []check{{start, ErrNotYet}, {next, ErrNotServed}}},
		"failures":           {[]error{errUnreachable}, []check{{start, ErrNotYet}, {next, errUnreachable}}},
		"a failure later":    {[]error{notServed, errUnreachable, notServed}, []check{{start, ErrNotServed}, {DiscoveryPeriod, ErrNotYet}, {next, ErrNotServed}}},
		"repaired":           {[]error{forbidden, notServed}, []check{{start, forbidden}, {DiscoveryPeriod, ErrNotServed}}},
		"an old result":      {[]error{notServed}, []check{{start, ErrNotServed}, {4 * DiscoveryPeriod, ErrNotYet}, {start, ErrNotServed}}},
		"a failure, old now": {[]error{errUnreachable}, []check{{start, ErrNotYet}, {next, errUnreachable}, {4 * DiscoveryPeriod, ErrNotYet}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := NewOptional(DiscoveryPeriod)
			o.Reader = &responses{next: test.probes}
			o.Users = func(context.Context) []reconcile.Request { return nil }
			_ = o.Start(t.Context(), noQueue{})
			wasNotServed := false
			for i, c := range test.checks {
				time.Sleep(c.after)
				if got := o.Check(); !errors.Is(got, c.want) {
					t.Errorf("%s: check %d = %v, want %v", name, i, got, c.want)
				}
				isNotServed := errors.Is(o.missing, ErrNotServed)
				wasNotServed = wasNotServed || isNotServed
				if want := isNotServed || !wasNotServed; o.IsSynced() != want {
					t.Errorf("%s: check %d: IsSynced = %t after %v", name, i, o.IsSynced(), o.missing)
				}
			}
		})
	}
}

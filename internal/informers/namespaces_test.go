package informers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// reader fails to list the objects of some namespaces.
type reader struct {
	client.Reader
	failures map[string]error
}

func (r *reader) List(ctx context.Context, _ client.ObjectList, options ...client.ListOption) error {
	namespace := (&client.ListOptions{}).ApplyOptions(options).Namespace
	if errors.Is(r.failures[namespace], context.DeadlineExceeded) {
		<-ctx.Done()
		return ctx.Err()
	}
	return r.failures[namespace]
}

var (
	forbidden      = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	notServed      = apierrors.NewNotFound(schema.GroupResource{Resource: "httproutes"}, "")
	errUnreachable = errors.New("connection refused")
)

func TestNamespacesThatCannotBeReadAreLeftOut(t *testing.T) {
	for name, test := range map[string]struct {
		a, b error
		want []string
	}{
		"both can be read":       {nil, nil, []string{"a", "b"}},
		"one is forbidden":       {nil, forbidden, []string{"a"}},
		"one does not respond":   {context.DeadlineExceeded, nil, []string{"b"}},
		"both are forbidden":     {forbidden, forbidden, []string{"a", "b"}},
		"a kind is not served":   {notServed, notServed, []string{"a", "b"}},
		"no API server":          {errUnreachable, errUnreachable, []string{"a", "b"}},
		"the API server starts":  {errUnreachable, nil, []string{"a", "b"}},
		"it starts, and forbids": {errUnreachable, forbidden, []string{"a"}},
		"it has no time":         {apierrors.NewTooManyRequests("later", 1), nil, []string{"a", "b"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := NewNamespaces(t.Context(), &reader{failures: map[string]error{"a": test.a, "b": test.b}}, []string{"a", "b"})
			if got := n.Readable(); !slices.Equal(got, test.want) {
				t.Errorf("%s: readable = %v, want %v", name, got, test.want)
			}
		})
	}
	for _, watched := range [][]string{nil, {"a"}} {
		if got := NewNamespaces(t.Context(), &reader{failures: map[string]error{"a": forbidden}}, watched).Readable(); !slices.Equal(got, watched) {
			t.Errorf("readable of %v = %v, want them all", watched, got)
		}
	}
}

func TestAwaitRequestsARestartWhenOtherNamespacesCanBeRead(t *testing.T) {
	for name, test := range map[string]struct {
		before, after map[string]error
		isSynced      bool
		want          bool
		isInstalled   bool // later, so that the cache is not synced
	}{
		"one is repaired":                         {map[string]error{"a": forbidden}, nil, true, true, false},
		"the API server restarts":                 {map[string]error{"a": forbidden}, map[string]error{"a": errUnreachable, "b": errUnreachable}, true, false, false},
		"it starts, without one of them":          {map[string]error{"a": errUnreachable, "b": errUnreachable}, map[string]error{"a": forbidden}, false, true, false},
		"none is repaired":                        {map[string]error{"a": forbidden}, map[string]error{"a": forbidden}, true, false, false},
		"another one fails, too":                  {map[string]error{"a": forbidden}, map[string]error{"a": forbidden, "b": forbidden}, true, false, false},
		"one fails later":                         {nil, map[string]error{"a": forbidden}, true, false, false},
		"one has failed when a kind is installed": {nil, map[string]error{"a": forbidden}, true, true, true},
		"one of all that failed can be read":      {map[string]error{"a": forbidden, "b": forbidden}, map[string]error{"a": forbidden}, false, true, false},
		"all that failed can be read":             {map[string]error{"a": forbidden, "b": forbidden}, nil, false, false, false},
		"all still fail":                          {map[string]error{"a": forbidden, "b": forbidden}, map[string]error{"a": forbidden, "b": forbidden}, false, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &reader{failures: test.before}
			n := NewNamespaces(t.Context(), r, []string{"a", "b"})
			r.failures = test.after
			ctx, cancel := context.WithTimeout(t.Context(), 2*probePeriod+time.Second)
			defer cancel()
			start := time.Now()
			isSynced := func() bool { return test.isSynced && (!test.isInstalled || time.Since(start) <= probePeriod) }
			if err := n.Await(ctx, isSynced); errors.Is(err, ErrReadable) != test.want {
				t.Errorf("%s: Await = %v, want ErrReadable: %t", name, err, test.want)
			}
		})
	}
}

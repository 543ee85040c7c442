package expectations

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func version(name, version string) client.Object {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, ResourceVersion: version}}
}

func TestACacheWithoutAWriteIsStale(t *testing.T) {
	for name, test := range map[string]struct {
		cached client.Object
		after  time.Duration
		want   bool
	}{
		"an older version":            {version("a", "9"), 0, true},
		"an older version for long":   {version("a", "9"), maxLag, true},
		"the written version":         {version("a", "10"), 0, false},
		"a newer version":             {version("a", "100"), 0, false},
		"no object":                   {nil, 0, true},
		"an older version for longer": {version("a", "9"), maxLag + 1, false},
		"no object for a second":      {nil, absence, true},
		"no object for longer":        {nil, absence + 1, false},
		"an unordered version":        {version("a", "x"), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var versions Versions
				written := version("a", "10")
				versions.Record("Service", written)
				time.Sleep(test.after)
				if got := versions.IsStale("Service", client.ObjectKeyFromObject(written), test.cached); got != test.want {
					t.Errorf("IsStale = %t, want %t", got, test.want)
				}
				if versions.IsStale("Deployment", client.ObjectKeyFromObject(written), nil) || versions.IsStale("Service", client.ObjectKey{Namespace: "n", Name: "b"}, nil) {
					t.Error("another object is stale")
				}
				time.Sleep(2 * maxLag)
				versions.Record("Service", version("b", "11"))
				if len(versions.written) != 1 {
					t.Errorf("%d writes are remembered, want the recent one", len(versions.written))
				}
			})
		})
	}
}

func TestTheObjectOfAnOwnWriteIsNoNews(t *testing.T) {
	written, name := version("a", "10"), client.ObjectKey{Namespace: "n", Name: "a"}
	for title, test := range map[string]struct {
		before func(*Versions)
		event  client.Object
		want   bool
	}{
		"the written version": {nil, written, false},
		"an older version":    {nil, version("a", "9"), true},
		"a newer version":     {nil, version("a", "11"), true},
		"another object":      {nil, version("b", "10"), true},
		"the written version, after a sufficient read":  {func(v *Versions) { v.IsStale("Service", name, written) }, written, false},
		"the written version, after a stale read":       {func(v *Versions) { v.IsStale("Service", name, version("a", "9")) }, written, true},
		"a later write, after a stale read of a former": {func(v *Versions) { v.IsStale("Service", name, nil); v.Record("Service", version("a", "12")) }, version("a", "12"), false},
	} {
		var versions Versions
		versions.Record("Service", written)
		if test.before != nil {
			test.before(&versions)
		}
		if got := versions.IsNews("Service", test.event); got != test.want {
			t.Errorf("%s: IsNews = %t, want %t", title, got, test.want)
		}
		hasArrived := title != "an older version" && title != "another object"
		if got := len(versions.written); (got == 0) != hasArrived {
			t.Errorf("%s: %d writes are remembered", title, got)
		}
	}
}

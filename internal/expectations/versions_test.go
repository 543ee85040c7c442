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

package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

const (
	// probePeriod is how often the namespaces are probed that are left out.
	probePeriod = 10 * time.Second
	// responseTimeout is how long the API server may take for the response to a probe.
	responseTimeout = 10 * time.Second
	// maxFailure is the maximum number of characters of the API server's message in the log.
	maxFailure = 256
)

// ErrReadable reports that other namespaces can be read than at the start.
var ErrReadable = errors.New("another namespace can be read")

// Namespaces are the namespaces that an operator watches. The cache of controller-runtime is synced only if it is in
// every namespace, so one that was deleted, or in which permissions are missing, would stop the operator in all. Such a
// namespace is left out.
type Namespaces struct {
	// Watched are the declared namespaces. None means all.
	Watched []string

	reader  client.Reader
	leftOut []string
}

// NewNamespaces probes the namespaces, and leaves out those that cannot be read, unless that is so for every one. The
// reader reads from the API server.
func NewNamespaces(ctx context.Context, reader client.Reader, watched []string) *Namespaces {
	n := &Namespaces{Watched: watched, reader: reader}
	if len(watched) < 2 {
		return n
	}
	results := n.probe(ctx, watched)
	for i, namespace := range watched {
		if err := results[i]; isRejection(err) {
			n.leftOut = append(n.leftOut, namespace)
			log.Log.Info("The namespace cannot be read; it is left out until it can", "namespace", namespace, "error", status.Truncate(err.Error(), maxFailure))
		}
	}
	if len(n.leftOut) == len(watched) {
		n.leftOut = nil
	}
	return n
}

// Readable returns the namespaces that are not left out. None means all.
func (n *Namespaces) Readable() []string {
	return slices.DeleteFunc(slices.Clone(n.Watched), func(namespace string) bool { return slices.Contains(n.leftOut, namespace) })
}

// Await returns ErrReadable when a namespace that was left out can be read or, while the cache is not synced, when only some
// namespaces can be. Then the operator has to start again. Otherwise, it returns nil at the end of the context.
func (n *Namespaces) Await(ctx context.Context, isSynced func() bool) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(probePeriod):
		}
		probed := n.leftOut
		if len(probed) == 0 && len(n.Watched) > 1 && !isSynced() {
			probed = n.Watched
		}
		var readable, rejected []string
		for i, err := range n.probe(ctx, probed) {
			switch {
			case isRejection(err):
				rejected = append(rejected, probed[i])
			case err == nil:
				readable = append(readable, probed[i])
			}
		}
		hasChanged := len(n.leftOut) > 0 || len(rejected) > 0 && !isSynced()
		if len(readable) > 0 && hasChanged && ctx.Err() == nil {
			return fmt.Errorf("%w: %v", ErrReadable, readable)
		}
	}
}

// probe reads one object of each kind in the namespaces, and returns the first error in each namespace, or nil.
func (n *Namespaces) probe(ctx context.Context, namespaces []string) []error {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	results, group := make([]error, len(namespaces)), sync.WaitGroup{}
	for i, namespace := range namespaces {
		group.Go(func() {
			for _, kind := range cachedKinds() {
				// The cluster may not serve an optional kind.
				if results[i] = client.IgnoreNotFound(probe(ctx, n.reader, kind, namespace)); results[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	return results
}

// isRejection reports whether the API server does not let the operator read a namespace, or does not respond for it. Any
// other error is that of an API server that starts or has too many requests.
func isRejection(err error) bool {
	return apierrors.IsForbidden(err) || errors.Is(err, context.DeadlineExceeded)
}

// cachedKinds are the kinds that the cache contains.
func cachedKinds() []children.Kind {
	return append(children.WatchedKinds(),
		children.Kind{ObjectKind: "Echo", Resource: echov1.GroupVersion.WithResource("echoes")},
		children.Kind{ObjectKind: "Pod", Resource: corev1.SchemeGroupVersion.WithResource("pods")})
}

// probe lists one object of a kind.
func probe(ctx context.Context, reader client.Reader, kind children.Kind, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.Resource.GroupVersion().WithKind(kind.ObjectKind + "List"))
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}

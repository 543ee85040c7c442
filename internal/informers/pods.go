package informers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/internal/status"
)

// The names of the cache indexes of pods, by the Echo that they serve or verify.
const (
	PodsByEcho     = "echo"
	PodsByVerified = "verified echo"
)

// IndexPods adds the indexes.
func IndexPods(ctx context.Context, indexer client.FieldIndexer) error {
	for index, label := range map[string]string{PodsByEcho: children.EchoLabel, PodsByVerified: children.VerifiesLabel} {
		err := indexer.IndexField(ctx, &corev1.Pod{}, index, func(pod client.Object) []string {
			if name := pod.GetLabels()[label]; name != "" {
				return []string{name}
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("index pods by Echo: %w", err)
		}
	}
	return nil
}

// transformPod reduces the memory of a cached pod.
func transformPod(object any) (any, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		return status.TransformPod(pod), nil
	}
	return object, nil
}

package main

import (
	"bytes"
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
)

// storage asks the API server's metrics for the size of etcd's file, in bytes. It also holds
// what was before, until it is compacted.
func (s *server) storage(ctx context.Context) (float64, error) {
	clients, err := kubernetes.NewForConfig(s.plane.Config)
	if err != nil {
		return 0, err
	}
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, err
	}
	families, err := parseMetrics(bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	const name = "apiserver_storage_size_bytes"
	metrics := families[name].GetMetric()
	if len(metrics) != 1 {
		return 0, fmt.Errorf("the API server has %d metrics %s, 1 was expected", len(metrics), name)
	}
	return metrics[0].GetGauge().GetValue(), nil
}

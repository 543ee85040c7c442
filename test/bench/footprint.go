package main

import (
	"bytes"
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
)

// footprint is what the API server and etcd take, in bytes.
type footprint struct{ apiServer, etcd float64 }

// footprint asks the API server's metrics. etcd's file also holds what was before, until it is
// compacted.
func (s *server) footprint(ctx context.Context) (f footprint, err error) {
	clients, err := kubernetes.NewForConfig(s.plane.Config)
	if err != nil {
		return f, err
	}
	text, err := clients.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return f, err
	}
	families, err := parseMetrics(bytes.NewReader(text))
	if err != nil {
		return f, err
	}
	for name, value := range map[string]*float64{"process_resident_memory_bytes": &f.apiServer, "apiserver_storage_size_bytes": &f.etcd} {
		metrics := families[name].GetMetric()
		if len(metrics) != 1 {
			return f, fmt.Errorf("the API server has %d metrics %s, 1 was expected", len(metrics), name)
		}
		*value = metrics[0].GetGauge().GetValue()
	}
	return f, nil
}

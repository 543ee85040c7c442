package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func parseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// storageSize reads the size of etcd's file from the API server's metrics, in bytes. The file
// also holds old revisions until etcd compacts them.
func (e *environment) storageSize(ctx context.Context) (float64, error) {
	clients, err := kubernetes.NewForConfig(e.controlPlane.Config)
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
		return 0, fmt.Errorf("the API server has %d metrics %s, want 1", len(metrics), name)
	}
	return metrics[0].GetGauge().GetValue(), nil
}

// scraper reads the operator's metrics.
type scraper struct {
	client     *http.Client
	url, token string
}

// newScraper creates a service account of the given name that may read the metrics.
func (e *environment) newScraper(ctx context.Context, name, port string) (*scraper, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	token := &authenticationv1.TokenRequest{}
	c := e.controlPlane.Client
	if err := errors.Join(c.Create(ctx, account), c.Create(ctx, role), c.Create(ctx, binding)); err != nil {
		return nil, err
	}
	if err := c.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // The certificate is self-signed.
	return &scraper{client: &http.Client{Transport: transport}, url: "https://127.0.0.1:" + port + "/metrics", token: token.Status.Token}, nil
}

// scrape reads the operator's metrics.
func (s *scraper) scrape(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // The body is read; nothing is left to fail.
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the operator's metrics: %s", response.Status)
	}
	return parseMetrics(response.Body)
}

// queueDuration reads how long Echoes have waited in the queue since the operator's start.
func (s *scraper) queueDuration(ctx context.Context) (*dto.Histogram, error) {
	families, err := s.scrape(ctx)
	if err != nil {
		return nil, err
	}
	const name = "workqueue_queue_duration_seconds"
	for _, metric := range families[name].GetMetric() {
		if hasLabel(metric, "name", "echo") {
			return metric.GetHistogram(), nil
		}
	}
	return nil, errors.New("the operator has no metric " + name + " for its queue")
}

// reconciliations reads the number of reconciliations of Echoes since the operator's start.
func (s *scraper) reconciliations(ctx context.Context) (count float64, err error) {
	families, err := s.scrape(ctx)
	if err != nil {
		return 0, err
	}
	const name = "controller_runtime_reconcile_total"
	if families[name] == nil {
		return 0, errors.New("the operator has no metric " + name)
	}
	for _, metric := range families[name].GetMetric() {
		if hasLabel(metric, "controller", "echo") {
			count += metric.GetCounter().GetValue()
		}
	}
	return count, nil
}

func hasLabel(metric *dto.Metric, name, value string) bool {
	return slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name && l.GetValue() == value })
}

// quantile returns the upper bound of the histogram bucket with the quantile of all observations
// between two scrapes.
func quantile(before, after *dto.Histogram, q float64) time.Duration {
	count := float64(after.GetSampleCount() - before.GetSampleCount())
	for i, bucket := range after.GetBucket() {
		if float64(bucket.GetCumulativeCount()-before.GetBucket()[i].GetCumulativeCount()) >= q*count {
			return time.Duration(bucket.GetUpperBound() * float64(time.Second))
		}
	}
	return math.MaxInt64
}

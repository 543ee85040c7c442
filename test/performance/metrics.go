package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kkloud-io/echo-operator/internal/testing/controlplane"
)

// scraper reads the metrics of operators that serve them at its address.
type scraper struct {
	client         *http.Client
	address, token string
}

// newScraper creates a service account of the given name that may read the metrics.
func (e *environment) newScraper(ctx context.Context, name string) (*scraper, error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	if err := e.controlPlane.Client.Create(ctx, account); err != nil {
		return nil, err
	}
	subject := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: name}
	if err := e.bind(ctx, name, "system:monitoring", subject); err != nil {
		return nil, err
	}
	token := &authenticationv1.TokenRequest{}
	if err := e.controlPlane.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // The certificate is self-signed.
	return &scraper{client: &http.Client{Transport: transport}, address: "127.0.0.1:" + port, token: token.Status.Token}, nil
}

// flag makes an operator serve its metrics at the address of the scraper.
func (s *scraper) flag() string { return "--metrics-bind-address=" + s.address }

// reconciliations reads the number of reconciliations of Echoes since the operator's start. A new
// operator serves metrics only when it has created a certificate.
func (s *scraper) reconciliations(ctx context.Context) (count float64, err error) {
	timedOut := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		count, err = s.scrape(ctx)
		return err == nil, nil
	})
	return count, errors.Join(timedOut, err)
}

func (s *scraper) scrape(ctx context.Context) (count float64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }() // The body is read; nothing is left to fail.
	if response.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("read the operator's metrics: %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return 0, err
	}
	const name = "controller_runtime_reconcile_total"
	if families[name] == nil {
		return 0, fmt.Errorf("the operator has no metric %s", name)
	}
	for _, metric := range families[name].GetMetric() {
		if slices.ContainsFunc(metric.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == "controller" && l.GetValue() == "echo" }) {
			count += metric.GetCounter().GetValue()
		}
	}
	return count, nil
}

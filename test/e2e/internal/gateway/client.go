package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
	"github.com/kkloud-io/echo-operator/test/e2e/internal/workload"
)

// Answer is what a client receives.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// Client makes requests to one listener, from outside the cluster, each over a new connection.
type Client struct {
	http http.Client
}

// Connect returns a client of a listener, for URLs with any hostname and the port 80. The
// connection lasts until the end of the spec or container that calls it, or until Traefik stops.
func Connect(listener string) *Client {
	ginkgo.GinkgoHelper()
	address := cluster.Forward(traefik, "service/"+traefik, listener)
	return &Client{http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		DisableCompression: true, DisableKeepAlives: true,
	}, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Get requests a URL.
func (c *Client) Get(url string) (Answer, error) {
	response, err := c.http.Get(url)
	if err != nil {
		return Answer{}, err
	}
	body, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	return Answer{response.StatusCode, response.Header, string(body)}, err
}

// ExpectAnswer waits until the answer to a request of the URL has the status, and a body that matches.
func (c *Client) ExpectAnswer(url string, status int, body types.GomegaMatcher) Answer {
	ginkgo.GinkgoHelper()
	var answer Answer
	gomega.Eventually(func(g gomega.Gomega) {
		var err error
		answer, err = c.Get(url)
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(answer.Status).To(gomega.Equal(status), answer.Body)
		g.Expect(answer.Body).To(body)
	}, programmed).Should(gomega.Succeed(), "answer of %s", url)
	return answer
}

// Repeat requests the URL twenty times a second, until the caller calls stop. Each answer must have
// status 200 and one of the bodies.
func (c *Client) Repeat(url string, bodies ...string) (stop func() workload.Requests) {
	requests := workload.Requests{Answers: map[string]int{}}
	var lock sync.Mutex
	var running sync.WaitGroup
	request := func() {
		answer, err := c.Get(url)
		if err == nil && (answer.Status != http.StatusOK || !slices.Contains(bodies, answer.Body)) {
			err = fmt.Errorf("%d %.100q, want 200 and one of %q", answer.Status, answer.Body, bodies)
		}
		lock.Lock()
		defer lock.Unlock()
		requests.Sent++
		if err == nil {
			requests.Answers[answer.Body]++
			return
		}
		requests.Failed++
		requests.Failures = append(requests.Failures, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
	}
	ctx, cancel := context.WithCancel(context.Background())
	running.Go(func() {
		for ticker := time.NewTicker(interval); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
				running.Go(request)
			}
		}
	})
	return func() workload.Requests {
		cancel()
		running.Wait()
		return requests
	}
}

package workload

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kkloud-io/echo-operator/test/e2e/internal/cluster"
)

// pollPeriod is the time between two looks at a prober.
const pollPeriod = 500 * time.Millisecond

// Requests are the counts of a prober.
type Requests struct {
	// Sent and Failed count the requests over new connections.
	Sent, Failed int
	// KeptSent and KeptFailed count the requests over connections that the prober keeps alive.
	KeptSent, KeptFailed int
	// Responses counts the successful requests by the text that the response contained.
	Responses map[string]int
	// Failures describes the first failed requests.
	Failures []string
}

// StartProber starts a pod that requests each URL twenty times a second over new connections, and a
// hundred times over ten kept ones. A target is a URL, an equals sign, and the texts of which each response must contain one.
func StartProber(namespace, name string, targets ...string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(cluster.Client().Create(context.Background(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{
				Name: "prober", Args: targets,
				Image: cmp.Or(os.Getenv("PROBER_IMG"), "ghcr.io/kkloud-io/echo-operator-prober:test"),
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   new(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
		},
	})).To(gomega.Succeed())
	gomega.Eventually(requestsOf).WithArguments(namespace, name).WithTimeout(time.Minute).WithPolling(pollPeriod).
		Should(gomega.HaveField("Sent", gomega.BeNumerically(">", 2*len(targets))))
}

// Request lets the pod of a prober request a target once, now, over a new connection.
func Request(namespace, prober, target string) error {
	response, body, err := cluster.Raw("/api/v1/namespaces/" + namespace + "/pods/" + prober + ":8080/proxy/request?target=" + url.QueryEscape(target))
	if err == nil && response.StatusCode != http.StatusOK {
		return errors.New(body)
	}
	return err
}

// RequestsOf returns the present counts of a prober.
func RequestsOf(namespace, name string) Requests {
	ginkgo.GinkgoHelper()
	requests, err := requestsOf(namespace, name)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return requests
}

func requestsOf(namespace, name string) (requests Requests, err error) {
	response, body, err := cluster.Raw("/api/v1/namespaces/" + namespace + "/pods/" + name + ":8080/proxy/")
	if err != nil {
		return requests, err
	}
	if response.StatusCode != http.StatusOK {
		return requests, fmt.Errorf("prober %s/%s: %s: %s", namespace, name, response.Status, body)
	}
	return requests, json.Unmarshal([]byte(body), &requests)
}

// Since returns the difference to earlier counts. Failures contains all that the prober kept.
func (r Requests) Since(before Requests) Requests {
	r.Sent -= before.Sent
	r.Failed -= before.Failed
	r.KeptSent -= before.KeptSent
	r.KeptFailed -= before.KeptFailed
	responses := map[string]int{}
	for text, count := range r.Responses {
		if count > before.Responses[text] {
			responses[text] = count - before.Responses[text]
		}
	}
	r.Responses = responses
	return r
}

package scenarios

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
)

// webhookMessage is the message with which webhooks deny a request.
const webhookMessage = "denied by the chaos webhook"

// webhookCall is a call of a webhook for a write of the operator.
type webhookCall struct {
	// number counts the calls, from 0.
	number  int
	request *admissionv1.AdmissionRequest
	// stopped is closed when the webhook stops.
	stopped <-chan struct{}
}

// wait waits for a duration, or until the API server closes the connection, or the webhook stops.
func (c webhookCall) wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-c.stopped:
	case <-time.After(d):
	}
}

// review writes the response as an AdmissionReview.
func (c webhookCall) review(w http.ResponseWriter, response admissionv1.AdmissionResponse) {
	response.UID = c.request.UID
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{ // The API server may have closed the connection.
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: &response,
	})
}

// webhookResponse handles a call.
type webhookResponse func(http.ResponseWriter, *http.Request, webhookCall)

func allow(w http.ResponseWriter, _ *http.Request, c webhookCall) {
	c.review(w, admissionv1.AdmissionResponse{Allowed: true})
}

// deny denies the request with the HTTP status code and, unless 0, the seconds after which the
// client is to retry.
func deny(code, retryAfter int32) webhookResponse {
	return func(w http.ResponseWriter, _ *http.Request, c webhookCall) {
		result := &metav1.Status{Code: code, Message: webhookMessage}
		if retryAfter > 0 {
			result.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		}
		c.review(w, admissionv1.AdmissionResponse{Result: result})
	}
}

// slow allows the request after a while.
func slow(d time.Duration) webhookResponse {
	return func(w http.ResponseWriter, r *http.Request, c webhookCall) {
		c.wait(r.Context(), d)
		allow(w, r, c)
	}
}

// hang does not respond until the webhook stops.
var hang = slow(time.Hour)

// flap denies every other request, starting with the first.
func flap(w http.ResponseWriter, r *http.Request, c webhookCall) {
	if c.number%2 == 0 {
		deny(http.StatusInternalServerError, 0)(w, r, c)
	} else {
		allow(w, r, c)
	}
}

// disconnect closes the connection in place of a response.
func disconnect(http.ResponseWriter, *http.Request, webhookCall) { panic(http.ErrAbortHandler) }

// patch changes the object by a JSON patch.
func patch(operations string) webhookResponse {
	return func(w http.ResponseWriter, _ *http.Request, c webhookCall) {
		c.review(w, admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: ptr.To(admissionv1.PatchTypeJSONPatch)})
	}
}

// webhook is an admission webhook for what the operator writes in the subject namespace. It runs
// inside the campaign.
type webhook struct {
	resources []schema.GroupVersionResource
	operation admissionregistrationv1.OperationType
	mutating  bool
	// timeout is its timeoutSeconds.
	timeout int32
	// ignore allows requests when the webhook fails.
	ignore   bool
	response webhookResponse

	server  *httptest.Server
	stopped chan struct{}

	mu sync.Mutex
	// probed is true after the first dry run.
	probed bool
	calls  int
}

const webhookDomain = ".chaos.kkloud.io"

// name returns the name of the webhook in the namespace, which messages of the API server contain.
func (h *webhook) name(namespace string) string { return namespace + webhookDomain }

// install starts the webhook, registers it, and waits until the dry run of the probe reaches it.
func (h *webhook) install(ctx context.Context, e *harness.Environment, probe func(context.Context) error) (undo, error) {
	h.stopped = make(chan struct{})
	h.server = httptest.NewUnstartedServer(h)
	h.server.Config.ErrorLog = log.New(io.Discard, "", 0) // Connections that the API server closes would fill the log.
	h.server.StartTLS()
	unregister, err := install(ctx, e, h.configuration(e))
	stop := sync.OnceFunc(func() {
		close(h.stopped)
		h.server.CloseClientConnections()
		h.server.Close()
	})
	if err != nil {
		stop()
		return nil, err
	}
	remove := func(ctx context.Context) error {
		err := unregister(ctx)
		stop()
		return err
	}
	err = e.Await(ctx, harness.ConvergenceTimeout, "webhook is in effect", func(ctx context.Context) error {
		err := probe(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.probed && (err == nil || !strings.Contains(err.Error(), h.name(e.Subject))) {
			return fmt.Errorf("dry run: want a call of the webhook, got %w", orAccepted(err))
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, remove(ctx))
	}
	return remove, nil
}

// configuration registers the webhook for writes of the operator, and for dry runs.
func (h *webhook) configuration(e *harness.Environment) client.Object {
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	rules := make([]admissionregistrationv1.RuleWithOperations, len(h.resources))
	for i, resource := range h.resources {
		rules[i] = admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{h.operation},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{resource.Group}, APIVersions: []string{resource.Version}, Resources: []string{resource.Resource},
			},
		}
	}
	policy := admissionregistrationv1.Fail
	if h.ignore {
		policy = admissionregistrationv1.Ignore
	}
	meta := metav1.ObjectMeta{Name: e.Subject}
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: h.name(e.Subject), ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &h.server.URL, CABundle: authority},
		Rules: rules, FailurePolicy: &policy, TimeoutSeconds: &h.timeout,
		NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.Subject}},
		SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{admissionv1.SchemeGroupVersion.Version},
		MatchConditions: []admissionregistrationv1.MatchCondition{
			{Name: "operator", Expression: fmt.Sprintf("request.userInfo.username == '%s' || (has(request.dryRun) && request.dryRun)", harness.OperatorUser)},
			{Name: "other-echo", Expression: "!request.name.endsWith('two')"}, // The Echo "two" is not concerned.
		},
	}
	if h.mutating {
		return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: hook.Name, ClientConfig: hook.ClientConfig, Rules: hook.Rules, FailurePolicy: hook.FailurePolicy, TimeoutSeconds: hook.TimeoutSeconds,
			NamespaceSelector: hook.NamespaceSelector, SideEffects: hook.SideEffects,
			AdmissionReviewVersions: hook.AdmissionReviewVersions, MatchConditions: hook.MatchConditions,
		}}}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{hook}}
}

// ServeHTTP allows dry runs, and handles the operator's writes.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "want an AdmissionReview", http.StatusBadRequest)
		return
	}
	call := webhookCall{request: review.Request, stopped: h.stopped}
	h.mu.Lock()
	response := h.response
	if ptr.Deref(review.Request.DryRun, false) {
		h.probed, response = true, allow
	} else {
		call.number = h.calls
		h.calls++
	}
	h.mu.Unlock()
	response(w, r, call)
}

// probeCreation returns a dry run that creates a child of the kind.
func probeCreation(e *harness.Environment, kind children.Kind) func(context.Context) error {
	return func(ctx context.Context) error {
		return e.Client.Create(ctx, uncontrolled(kind, e.Subject), client.DryRunAll)
	}
}

// probeUpdate returns a dry run that changes an object.
func probeUpdate(e *harness.Environment, object client.Object) func(context.Context) error {
	return func(ctx context.Context) error {
		return e.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"probe":""}}}`)), client.DryRunAll)
	}
}

// probeStatus returns a dry run that changes the status of an Echo.
func probeStatus(e *harness.Environment, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: e.Subject, Name: name}}
		return e.Client.Status().Patch(ctx, echo, client.RawPatch(types.MergePatchType, []byte(`{"status":{"ready":"?"}}`)), client.DryRunAll)
	}
}

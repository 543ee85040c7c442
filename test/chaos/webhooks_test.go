package chaos

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/test/internal/oracle"
)

// webhook is an admission webhook for what the operator writes in the namespace of a test.
type webhook struct {
	rule    admissionregistrationv1.RuleWithOperations
	timeout int32 // Seconds.
	respond admission.HandlerFunc
}

const webhookName = "webhook.chaos.kkloud.io"

func ruleFor(operation admissionregistrationv1.OperationType, group, version string, resources ...string) admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}
}

// install registers the webhook, and waits until the API server calls it. It returns how to remove it.
func (h webhook) install(e *environment) (remove func()) {
	e.Helper()
	var calls atomic.Int64
	stopped := make(chan struct{})
	handler := &admission.Webhook{RecoverPanic: new(false), Handler: admission.HandlerFunc(func(ctx context.Context, r admission.Request) admission.Response {
		calls.Add(1)
		if ptr.Deref(r.DryRun, false) {
			return admission.Allowed("")
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-stopped:
				cancel()
			case <-ctx.Done():
			}
		}()
		return h.respond(ctx, r)
	})}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // The API server closes connections.
	server.StartTLS()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: e.namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: webhookName,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules:         []admissionregistrationv1.RuleWithOperations{h.rule, ruleFor(admissionregistrationv1.Create, "", "v1", "configmaps")},
			FailurePolicy: ptr.To(admissionregistrationv1.Fail), TimeoutSeconds: &h.timeout,
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.namespace}},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{admissionv1.SchemeGroupVersion.Version},
			MatchConditions: []admissionregistrationv1.MatchCondition{
				{Name: "operator", Expression: fmt.Sprintf("request.userInfo.username == '%s' || (has(request.dryRun) && request.dryRun)", operatorUser)},
			},
		}},
	}
	e.must(e.client.Create(e.Context(), configuration))
	isRemoved := false
	remove = func() {
		if isRemoved {
			return
		}
		isRemoved = true
		if err := e.client.Delete(context.Background(), configuration); err != nil {
			e.Error(err)
		}
		close(stopped)
		server.CloseClientConnections()
		server.Close()
	}
	e.Cleanup(remove)
	probe := newConfigMap(e.namespace)
	e.await(convergenceLimit, "the API server calls the webhook", func() error {
		err := e.client.Create(e.Context(), probe.DeepCopy(), client.DryRunAll)
		if err == nil && calls.Load() == 0 {
			err = fmt.Errorf("a dry run did not call it")
		}
		return err
	})
	return remove
}

// deny denies a request with an HTTP status code and, unless 0, the seconds after which the client is to retry.
func deny(code, retryAfter int32) admission.HandlerFunc {
	return func(context.Context, admission.Request) admission.Response {
		result := &metav1.Status{Code: code, Message: "denied by the webhook"}
		if retryAfter > 0 {
			result.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfter}
		}
		return admission.Response{AdmissionResponse: admissionv1.AdmissionResponse{Result: result}}
	}
}

func hang(ctx context.Context, _ admission.Request) admission.Response {
	<-ctx.Done()
	return admission.Allowed("")
}

func disconnect(context.Context, admission.Request) admission.Response { panic(http.ErrAbortHandler) }

// flaps denies every other request.
func flaps() admission.HandlerFunc {
	var calls atomic.Int64
	return func(ctx context.Context, r admission.Request) admission.Response {
		if calls.Add(1)%2 == 1 {
			return deny(http.StatusInternalServerError, 0)(ctx, r)
		}
		return admission.Allowed("")
	}
}

// A webhook that fails a write, in every way: the status says so, other writes go on, the operator retries not too often, and it
// converges soon after the webhook is gone.
func TestWebhookFails(t *testing.T) {
	creation := ruleFor(admissionregistrationv1.Create, "", "v1", "services")
	update := ruleFor(admissionregistrationv1.Update, "apps", "v1", "deployments")
	status := ruleFor(admissionregistrationv1.Update, echov1.GroupVersion.Group, echov1.GroupVersion.Version, "echoes/status")
	for _, way := range []struct {
		name      string
		timeout   int32
		respond   admission.HandlerFunc
		converges bool // also while the webhook is there
	}{
		{"denies with 403", 2, deny(http.StatusForbidden, 0), false},
		{"denies with 409", 2, deny(http.StatusConflict, 0), false},
		{"denies with 429 and a Retry-After of 20 s", 2, deny(http.StatusTooManyRequests, 20), false},
		{"denies every other request", 2, flaps(), true},
		{"hangs until its timeout of 10 s", 10, hang, false},
		{"hangs until its timeout of 30 s", 30, hang, false},
		{"closes the connection", 2, disconnect, false},
	} {
		for rejected, rule := range map[string]admissionregistrationv1.RuleWithOperations{"creation": creation, "update": update, "status": status} {
			t.Run(rejected+"/"+way.name, func(t *testing.T) {
				if way.timeout != 10 {
					long(t)
				}
				t.Parallel() // Most of it is waiting.
				e := newEnvironment(t)
				o := e.start()
				if rejected != "creation" {
					e.createReady(1)
				}
				before := len(o.written(0))
				remove := webhook{rule, way.timeout, way.respond}.install(e)
				if rejected == "creation" {
					e.must(e.create(e.namespace, "echo-0", echov1.EchoSpec{Message: "m"}))
				} else {
					e.editAll(0, 1, "edited")
				}
				switch {
				case way.converges:
					e.await(convergenceLimit, "the Echo is ready", e.allReady())
				case rejected == "status": // Nothing can tell the user.
					time.Sleep(time.Duration(way.timeout+5) * time.Second)
				default:
					e.await(convergenceLimit, "the Echo reports the rejection", e.each(e.namespace, func(echo *echov1.Echo) error {
						return oracle.CheckDegraded(echo, echov1.ReasonRejected, "")
					}))
				}
				if writes := o.written(before); len(writes) > 60 {
					e.Errorf("%d writes, of which the last are %s", len(writes), strings.Join(writes[len(writes)-10:], ", "))
				}
				remove()
				e.within(time.Now(), convergenceLimit, "the Echo is ready without the webhook", e.allReady())
				e.verify(o)
			})
		}
	}
}

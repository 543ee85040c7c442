// Package cluster contains what the end-to-end suites do with the cluster of KUBECONFIG.
package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
)

var restConfig = sync.OnceValue(func() *rest.Config {
	ginkgo.GinkgoHelper()
	c, err := config.GetConfig()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	c.QPS = -1
	c.Timeout = 10 * time.Second
	c.WarningHandlerWithContext = rest.NoWarnings{}
	return c
})

// Client returns a client of the cluster. Its scheme has the built-in kinds, Echoes, HTTPRoutes, and the
// kinds of OLM v0.
var Client = sync.OnceValue(func() client.Client {
	ginkgo.GinkgoHelper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, echov1.AddToScheme, gatewayv1.Install, operatorsv1alpha1.AddToScheme,
	} {
		gomega.Expect(add(scheme)).To(gomega.Succeed())
	}
	c, err := client.New(restConfig(), client.Options{Scheme: scheme})
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return c
})

var httpClient = sync.OnceValue(func() *http.Client {
	ginkgo.GinkgoHelper()
	c, err := rest.HTTPClientFor(restConfig())
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return c
})

// Raw requests a path of the API server, like kubectl get --raw. It returns every response, whatever
// its status code is, and follows no redirect.
func Raw(path string) (response *http.Response, body string, err error) {
	address, _, err := rest.DefaultServerUrlFor(restConfig())
	if err != nil {
		return nil, "", err
	}
	client := *httpClient()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err = client.Get(strings.TrimSuffix(address.String(), "/") + path)
	if err != nil {
		return nil, "", err
	}
	content, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	return response, string(content), err
}

// Get reads an object.
func Get[T client.Object](namespace, name string, object T) T {
	ginkgo.GinkgoHelper()
	gomega.Expect(Client().Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, object)).To(gomega.Succeed())
	return object
}

// Pods lists the pods that a label selector matches.
func Pods(namespace, selector string) ([]corev1.Pod, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	err = Client().List(context.Background(), &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: parsed})
	return pods.Items, err
}

// CreateEcho creates an Echo.
func CreateEcho(namespace, name string, spec echov1.EchoSpec) {
	ginkgo.GinkgoHelper()
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
	gomega.Expect(Client().Create(context.Background(), echo)).To(gomega.Succeed())
}

// PatchEcho applies a JSON merge patch to the spec of an Echo.
func PatchEcho(namespace, name, spec string) {
	ginkgo.GinkgoHelper()
	Patch(&echov1.Echo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, `{"spec":`+spec+`}`)
}

// Patch applies a JSON merge patch to an object.
func Patch(object client.Object, patch string) {
	ginkgo.GinkgoHelper()
	gomega.Expect(Client().Patch(context.Background(), object, client.RawPatch("application/merge-patch+json", []byte(patch)))).To(gomega.Succeed())
}

// Condition returns a function that reads status, reason and message of a condition of an Echo, for example
// "False ImagePullFailed: not found". It returns an empty string while the Echo does not have the condition.
func Condition(namespace, name, kind string) func() (string, error) {
	return func() (string, error) {
		var echo echov1.Echo
		err := Client().Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &echo)
		for _, c := range echo.Status.Conditions {
			if c.Type == kind {
				return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), err
			}
		}
		return "", err
	}
}

// notReady describes why an Echo is not ready in its current generation, or is empty.
func notReady(echo *echov1.Echo) string {
	for _, c := range echo.Status.Conditions {
		if c.Type == echov1.ConditionReady && c.ObservedGeneration == echo.Generation {
			if c.Status == metav1.ConditionTrue {
				return ""
			}
			return fmt.Sprintf("Echo %s/%s: Ready=%s %s: %s\n", echo.Namespace, echo.Name, c.Status, c.Reason, c.Message)
		}
	}
	return fmt.Sprintf("Echo %s/%s: no condition Ready for generation %d\n", echo.Namespace, echo.Name, echo.Generation)
}

// WaitReady waits until the Echo is ready in its current generation.
func WaitReady(namespace, name string) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func() (string, error) {
		var echo echov1.Echo
		if err := Client().Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name}, &echo); err != nil {
			return "", err
		}
		return notReady(&echo), nil
	}, "2m", "20ms").Should(gomega.BeEmpty())
}

// WaitSettled waits until every Echo of the namespace is ready in its current generation, and no pod
// of an earlier generation is left.
func WaitSettled(namespace string) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func() (string, error) {
		var echoes echov1.EchoList
		if err := Client().List(context.Background(), &echoes, client.InNamespace(namespace)); err != nil {
			return "", err
		}
		pods, err := Pods(namespace, "kkloud.io/echo")
		want, report := 0, ""
		for _, echo := range echoes.Items {
			want += int(echo.Spec.Replicas)
			report += notReady(&echo)
			if ready := fmt.Sprintf("%d/%[1]d", echo.Spec.Replicas); echo.Status.Ready != ready {
				report += fmt.Sprintf("Echo %s/%s: status.ready = %s, want %s\n", namespace, echo.Name, echo.Status.Ready, ready)
			}
		}
		if len(pods) != want {
			report += fmt.Sprintf("%d pods in namespace %s, want %d\n", len(pods), namespace, want)
		}
		return report, err
	}, "2m", "200ms").Should(gomega.BeEmpty())
}

// ExpectBody checks the body of the response of the Echo's Service, whose status is 200.
func ExpectBody(namespace, echo, port string, body types.GomegaMatcher) {
	ginkgo.GinkgoHelper()
	ExpectResponse(namespace, echo, port, http.StatusOK, body)
}

// ExpectResponse checks status and body of the response of the Echo's Service, and returns its header. It retries for
// 20 s: endpoints follow the readiness of pods, and no status shows when they are programmed.
func ExpectResponse(namespace, echo, port string, status int, body types.GomegaMatcher) (header http.Header) {
	ginkgo.GinkgoHelper()
	gomega.Eventually(func(g gomega.Gomega) {
		response, got, err := Raw("/api/v1/namespaces/" + namespace + "/services/echo-" + echo + ":" + port + "/proxy/")
		g.Expect(err).NotTo(gomega.HaveOccurred())
		g.Expect(response.StatusCode).To(gomega.Equal(status), got)
		g.Expect(got).To(body)
		header = response.Header
	}, "20s", "500ms").Should(gomega.Succeed(), "response of Service %s/echo-%s", namespace, echo)
	return header
}

// RunDocuments runs a test of documents, whose package is in a folder, on the cluster.
func RunDocuments(folder, test string) {
	ginkgo.GinkgoHelper()
	output, err := exec.Command("go", "test", "-count=1", "-v", "-tags=e2e", "-run="+test+"$", folder).CombinedOutput() // #nosec G204
	ginkgo.GinkgoWriter.Write(output)                                                                                   //nolint:errcheck // GinkgoWriter returns no errors.
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), string(output))
}

// NewNamespace creates a namespace that enforces the restricted Pod Security Standard, and
// deletes it at the end of the spec or container that calls it. It first deletes a namespace of
// that name from an interrupted run.
func NewNamespace(name string) {
	ginkgo.GinkgoHelper()
	namespace := func() *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}
	}
	remove := func() error { return client.IgnoreNotFound(Client().Delete(context.Background(), namespace())) }
	gomega.Expect(remove()).To(gomega.Succeed())
	gomega.Eventually(func() error { // Until the deletion has ended.
		return Client().Create(context.Background(), namespace())
	}, "2m", "500ms").Should(gomega.Succeed())
	ginkgo.DeferCleanup(func() { gomega.Expect(remove()).To(gomega.Succeed()) })
}

// ChildResources returns the resources of all children of an Echo, as kubectl takes them. It omits those
// that the cluster may not serve.
func ChildResources() string {
	var resources []string
	for _, kind := range children.Kinds {
		if !kind.OptionalAPI {
			resources = append(resources, kind.Resource.GroupResource().String())
		}
	}
	return strings.Join(resources, ",")
}

// Kubectl runs kubectl and returns its output. If kubectl fails, the spec fails.
func Kubectl(args ...string) string {
	ginkgo.GinkgoHelper()
	output, err := TryKubectl("", args...)
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), "kubectl %s\n%s", strings.Join(args, " "), output)
	return output
}

// TryKubectl runs kubectl and returns its output and its error. If it succeeds, the output has no warnings.
func TryKubectl(stdin string, args ...string) (string, error) {
	command := exec.Command("kubectl", args...) //nolint:gosec // The specs choose the arguments.
	command.Stdin = strings.NewReader(stdin)
	var output, errors bytes.Buffer
	command.Stdout, command.Stderr = &output, &errors
	if err := command.Run(); err != nil {
		return output.String() + errors.String(), err
	}
	return output.String(), nil
}

// Apply applies a manifest.
func Apply(namespace, manifest string) {
	ginkgo.GinkgoHelper()
	output, err := TryKubectl(manifest, "-n", namespace, "apply", "-f", "-")
	gomega.Expect(err).NotTo(gomega.HaveOccurred(), output)
}

// StopOLM stops OLM until the spec ends: OLM would revert the changes to the operator.
func StopOLM() {
	ginkgo.GinkgoHelper()
	Kubectl("-n", "olm", "scale", "deployment/olm-operator", "--replicas=0")
	ginkgo.DeferCleanup(func() {
		Kubectl("-n", "olm", "scale", "deployment/olm-operator", "--replicas=1")
		Kubectl("-n", "olm", "rollout", "status", "deployment/olm-operator", "--timeout=60s")
	})
	Kubectl("-n", "olm", "wait", "--for=delete", "pod", "-l", "app=olm-operator", "--timeout=60s")
}

// Forward forwards a local port to the object's port until the spec or container that calls it ends,
// and returns the local address.
func Forward(namespace, object, port string) string {
	ginkgo.GinkgoHelper()
	command := exec.Command("kubectl", "-n", namespace, "port-forward", object, ":"+port) //nolint:gosec // The specs choose the arguments.
	output, err := command.StdoutPipe()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	gomega.Expect(command.Start()).To(gomega.Succeed())
	ginkgo.DeferCleanup(func() {
		gomega.Expect(command.Process.Kill()).To(gomega.Or(gomega.Succeed(), gomega.MatchError(os.ErrProcessDone)))
		_ = command.Wait() // The error of Wait is that of Kill.
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	gomega.Expect(address).NotTo(gomega.BeEmpty(), line)
	return address
}

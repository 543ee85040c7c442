package monitoring

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/manifests/internal/repo"
)

func TestPodMonitorSelectsVerifiersAndScrapesEveryLayer(t *testing.T) {
	monitor, err := VerifierMonitor(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	if !monitor.Spec.NamespaceSelector.Any {
		t.Errorf("%s does not select the namespaces of all Echoes", podMonitorFile)
	}
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil {
		t.Fatal(err)
	}
	var scraped []string
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		scraped = append(scraped, endpoint.Port)
	}
	for kind, template := range podTemplates(t) {
		if !children.Kinds[kind].Verifier {
			if selector.Matches(labels.Set(template.Labels)) {
				t.Errorf("%s selects the pods of kind %s", podMonitorFile, children.Kinds[kind].Name)
			}
			continue
		}
		if !selector.Matches(labels.Set(template.Labels)) {
			t.Errorf("%s does not select the pods of kind %s", podMonitorFile, children.Kinds[kind].Name)
		}
		var ports []string
		for _, container := range template.Spec.Containers {
			for _, port := range container.Ports {
				ports = append(ports, port.Name)
			}
		}
		repo.Same(t, "ports that the PodMonitor scrapes", scraped, ports)
	}
}

func TestPodMonitorSetsTheLabelsThatAlertsUse(t *testing.T) {
	monitor, err := VerifierMonitor(repo.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range monitor.Spec.PodMetricsEndpoints {
		var targets []string
		for _, relabeling := range endpoint.Relabelings {
			targets = append(targets, relabeling.TargetLabel)
			if relabeling.TargetLabel == "echo" && !slices.Equal(relabeling.SourceLabels, []string{podLabel(children.VerifiesLabel)}) {
				t.Errorf("port %s: label echo has the value of %v, want that of %s", endpoint.Port, relabeling.SourceLabels, children.VerifiesLabel)
			}
		}
		repo.Same(t, "labels of port "+endpoint.Port, targets, []string{"echo", "node", "job"})
	}
}

// podLabel returns the name that Prometheus gives a label of a pod.
func podLabel(label string) string {
	return "__meta_kubernetes_pod_label_" + strings.NewReplacer(".", "_", "/", "_").Replace(label)
}

// podTemplates returns the pod templates of an Echo with every layer, by the index of their kind.
func podTemplates(t *testing.T) map[int]corev1.PodTemplateSpec {
	t.Helper()
	echo := &echov1.Echo{ObjectMeta: metav1.ObjectMeta{Name: "hello", Namespace: "default"}, Spec: echov1.EchoSpec{
		Message: "hello", Port: 80, Verify: &echov1.Verify{PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3},
		Route: &echov1.Route{ParentRefs: []echov1.ParentRef{{Name: "g"}}, Hostnames: []string{"h.example"}, Scheme: "https", Paths: []echov1.Path{{Value: "/"}}},
	}}
	templates := map[int]corev1.PodTemplateSpec{}
	for i, kind := range children.Kinds {
		child := kind.New()
		kind.Mutate(child, echo, children.Inputs{ClusterIPs: []string{"10.0.0.1"}})
		switch o := child.(type) {
		case *appsv1.Deployment:
			templates[i] = o.Spec.Template
		case *appsv1.DaemonSet:
			templates[i] = o.Spec.Template
		}
	}
	if len(templates) != 3 {
		t.Fatalf("kinds with pods: %d, want 3", len(templates))
	}
	return templates
}

package children

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
)

var update = flag.Bool("update", false, "write the golden files anew")

const defaultImage = "docker.io/hashicorp/http-echo:1.0.0"

// newEcho returns an Echo as the API server would: with its defaults.
func newEcho(edits ...func(*echov1.Echo)) *echov1.Echo {
	echo := &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "op-demo", Name: "hello", UID: "11111111-2222-3333-4444-555555555555"},
		Spec:       echov1.EchoSpec{Message: "xin chao operator", Replicas: 1, Port: 80, TargetPort: 5678},
	}
	for _, edit := range edits {
		edit(echo)
	}
	return echo
}

func withPage(title string) func(*echov1.Echo) {
	return func(echo *echov1.Echo) { echo.Spec.Page = &echov1.Page{Title: title, Color: "#2196F3"} }
}

func ownServer(echo *echov1.Echo) {
	echo.Spec.Image = "docker.io/library/busybox:1.37"
	echo.Spec.Command = []string{"sh", "-c"}
	echo.Spec.Args = []string{`echo "$ECHO_TEXT"; exec sleep infinity`}
}

func everyField(echo *echov1.Echo) {
	ownServer(echo)
	withPage("Costs $5 & more")(echo)
	echo.Spec.Page.Language = "pt-BR"
	echo.Spec.Replicas = 5
	echo.Spec.Port = 8080
	echo.Spec.TargetPort = 80
	echo.Spec.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m")},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
	}
}

func shaped(echo *echov1.Echo) (*appsv1.Deployment, *corev1.Service, *policyv1.PodDisruptionBudget) {
	deployment, service, budget := &appsv1.Deployment{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{}
	Deployment(deployment, echo, defaultImage)
	Service(service, echo)
	PodDisruptionBudget(budget, echo)
	return deployment, service, budget
}

func TestGolden(t *testing.T) {
	for name, echo := range map[string]*echov1.Echo{
		"minimal":     newEcho(),
		"page":        newEcho(withPage("Greetings")),
		"own-server":  newEcho(ownServer),
		"every-field": newEcho(everyField),
	} {
		deployment, service, budget := shaped(echo)
		for child, object := range map[string]any{
			"deployment": deployment, "service": service, "poddisruptionbudget": budget,
		} {
			t.Run(name+"/"+child, func(t *testing.T) {
				got, err := yaml.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				file := filepath.Join("testdata", name, child+".yaml")
				if *update {
					if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, got, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if string(got) != string(want) {
					t.Errorf("%s differs; run with -update and look at the difference. Got:\n%s", file, got)
				}
			})
		}
	}
}

// TestReturnsToDefault walks through every pair of specs: a live object that had one and
// gets the other must equal an object that never had another.
func TestReturnsToDefault(t *testing.T) {
	specs := map[string]*echov1.Echo{
		"minimal": newEcho(), "page": newEcho(withPage("")), "own server": newEcho(ownServer), "every field": newEcho(everyField),
	}
	for from, before := range specs {
		for to, after := range specs {
			t.Run(from+" to "+to, func(t *testing.T) {
				deployment, service, budget := shaped(before)
				Deployment(deployment, after, defaultImage)
				Service(service, after)
				PodDisruptionBudget(budget, after)
				wantDeployment, wantService, wantBudget := shaped(after)
				equal(t, deployment, wantDeployment)
				equal(t, service, wantService)
				equal(t, budget, wantBudget)
			})
		}
	}
}

func TestKeepsWhatOthersOwn(t *testing.T) {
	echo := newEcho(ownServer)
	live, service, _ := shaped(echo)
	live.Labels["team"] = "blue"
	live.Annotations = map[string]string{"deployment.kubernetes.io/revision": "3"}
	live.OwnerReferences = append(live.OwnerReferences, metav1.OwnerReference{Kind: "Group", Name: "g", UID: "g"})
	live.OwnerReferences[0].BlockOwnerDeletion = nil // To change it takes the right to delete.
	pod := &live.Spec.Template
	pod.Labels["mesh"] = "on"
	pod.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	pod.Spec.DNSPolicy = corev1.DNSClusterFirst
	pod.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "mesh"}}, pod.Spec.Containers...)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "mesh"})
	pod.Spec.Containers[1].Env = append(pod.Spec.Containers[1].Env, corev1.EnvVar{Name: "MESH", Value: "on"})
	pod.Spec.Containers[1].VolumeMounts = append(pod.Spec.Containers[1].VolumeMounts, corev1.VolumeMount{Name: "mesh", MountPath: "/mesh"})
	service.Spec.ClusterIP = "10.96.1.2"
	service.Annotations = map[string]string{"lb": "off"}

	wantDeployment, wantService := live.DeepCopy(), service.DeepCopy()
	Deployment(live, echo, defaultImage)
	Service(service, echo)
	equal(t, live, wantDeployment)
	equal(t, service, wantService)

	// The variables for a server of one's own go with it; those of others stay.
	Deployment(live, newEcho(), defaultImage)
	if env := live.Spec.Template.Spec.Containers[1].Env; len(env) != 1 || env[0].Name != "MESH" {
		t.Errorf("variables are %v, want MESH alone", env)
	}
}

func TestUndoesDrift(t *testing.T) {
	echo := newEcho(func(e *echov1.Echo) { e.Spec.Replicas = 2 })
	wantDeployment, wantService, wantBudget := shaped(echo)
	for name, drift := range map[string]func(*appsv1.Deployment, *corev1.Service, *policyv1.PodDisruptionBudget){
		"replicas": func(d *appsv1.Deployment, _ *corev1.Service, _ *policyv1.PodDisruptionBudget) { *d.Spec.Replicas = 7 },
		"image": func(d *appsv1.Deployment, _ *corev1.Service, _ *policyv1.PodDisruptionBudget) {
			d.Spec.Template.Spec.Containers[0].Image = "evil"
		},
		"args": func(d *appsv1.Deployment, _ *corev1.Service, _ *policyv1.PodDisruptionBudget) {
			d.Spec.Template.Spec.Containers[0].Args = []string{"-text=other"}
		},
		"privileged": func(d *appsv1.Deployment, _ *corev1.Service, _ *policyv1.PodDisruptionBudget) {
			d.Spec.Template.Spec.HostNetwork = true
			d.Spec.Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{}
			d.Spec.Template.Spec.SecurityContext = nil
		},
		"probe": func(d *appsv1.Deployment, _ *corev1.Service, _ *policyv1.PodDisruptionBudget) {
			d.Spec.Template.Spec.Containers[0].ReadinessProbe = nil
		},
		"labels": func(d *appsv1.Deployment, s *corev1.Service, _ *policyv1.PodDisruptionBudget) {
			d.Labels, s.Labels = nil, nil
			d.Spec.Template.Labels = map[string]string{EchoLabel: "other"}
		},
		"pause": func(d *appsv1.Deployment, _ *corev1.Service, _ *policyv1.PodDisruptionBudget) { d.Spec.Paused = true },
		"service": func(_ *appsv1.Deployment, s *corev1.Service, _ *policyv1.PodDisruptionBudget) {
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Selector = map[string]string{"app": "other"}
			s.Spec.Ports[0].Port = 81
		},
		"service of another type": func(_ *appsv1.Deployment, s *corev1.Service, _ *policyv1.PodDisruptionBudget) {
			s.Spec.ExternalName, s.Spec.LoadBalancerSourceRanges = "example.com", []string{"192.0.2.0/24"}
		},
		"budget": func(_ *appsv1.Deployment, _ *corev1.Service, b *policyv1.PodDisruptionBudget) {
			b.Spec.MinAvailable, b.Spec.MaxUnavailable = b.Spec.MaxUnavailable, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			deployment, service, budget := shaped(echo)
			drift(deployment, service, budget)
			Deployment(deployment, echo, defaultImage)
			Service(service, echo)
			PodDisruptionBudget(budget, echo)
			equal(t, deployment, wantDeployment)
			equal(t, service, wantService)
			equal(t, budget, wantBudget)
		})
	}
}

func TestBudgetOnlyForSeveralPods(t *testing.T) {
	for replicas, want := range map[int32]bool{1: false, 2: true, 5: true} {
		echo := newEcho(func(e *echov1.Echo) { e.Spec.Replicas = replicas })
		if got := WantsPodDisruptionBudget(echo); got != want {
			t.Errorf("%d replicas: got %v, want %v", replicas, got, want)
		}
	}
}

func TestURL(t *testing.T) {
	for port, want := range map[int32]string{
		80:   "http://echo-hello.op-demo.svc",
		8080: "http://echo-hello.op-demo.svc:8080",
	} {
		if got := URL(newEcho(func(e *echov1.Echo) { e.Spec.Port = port })); got != want {
			t.Errorf("port %d: got %s, want %s", port, got, want)
		}
	}
}

func TestPageShowsMarkupAsText(t *testing.T) {
	html := Text(newEcho(withPage(`</title><script>alert(1)</script>`), func(e *echov1.Echo) {
		e.Spec.Message = "\n<b>bold</b> & $(HOME)"
	}))
	for _, want := range []string{
		"<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;</title>",
		"<main>\n&lt;b&gt;bold&lt;/b&gt; &amp; $(HOME)</main>",
		`content="#2196F3"`,
		"background: #2196F3;",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page lacks %s:\n%s", want, html)
		}
	}
	if !strings.HasPrefix(html, "<!DOCTYPE html>") {
		t.Error("the page does not begin as a browser expects")
	}
	if strings.HasSuffix(html, "\n") {
		t.Error("the page ends with a newline, and the server adds one")
	}
}

// TestLongestTextFitsAnArgument: Linux takes at most 128 KiB in one argument.
func TestLongestTextFitsAnArgument(t *testing.T) {
	for _, char := range []string{"'", "😀", "$", "<", "\n"} {
		text := Text(newEcho(withPage(strings.Repeat(char, 253)), func(e *echov1.Echo) {
			e.Spec.Message = strings.Repeat(char, 16384)
		}))
		if length := len("-text=" + text + "\x00"); length > 128<<10 {
			t.Errorf("a page of %q takes %d bytes", char, length)
		}
	}
}

func TestResourcesAreRounded(t *testing.T) {
	deployment, _, _ := shaped(newEcho(func(e *echov1.Echo) {
		e.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100500u")}
	}))
	got := deployment.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceCPU]
	if got.String() != "101m" {
		t.Errorf("got %s, want 101m as the API server stores it", got.String())
	}
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if equality.Semantic.DeepEqual(got, want) {
		return
	}
	gotYAML, _ := yaml.Marshal(got)
	wantYAML, _ := yaml.Marshal(want)
	t.Errorf("got:\n%s\nwant:\n%s", gotYAML, wantYAML)
}

// TestShare: Deployments that are kept use the same memory for what is the same.
func TestShare(t *testing.T) {
	own := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}}
	one, _, _ := shaped(newEcho())
	two, _, _ := shaped(newEcho(func(e *echov1.Echo) { e.Name, e.Spec.Resources = "two", own }))
	Share(one)
	Share(two)
	first, second := one.Spec.Template.Spec, two.Spec.Template.Spec
	if first.Containers[0].ReadinessProbe != second.Containers[0].ReadinessProbe || first.SecurityContext != second.SecurityContext {
		t.Error("equal parts of two Deployments are kept twice")
	}
	if first.TopologySpreadConstraints[0].LabelSelector != one.Spec.Selector {
		t.Error("a selector is kept twice")
	}
	if got := second.Containers[0].Resources; !equality.Semantic.DeepEqual(got, own) {
		t.Errorf("resources of one became those of all: %v", got)
	}
}

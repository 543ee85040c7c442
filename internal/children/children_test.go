package children

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

var update = flag.Bool("update", false, "update the golden files")

const defaultImage = "docker.io/hashicorp/http-echo:1.0.0"

// inputs are those of an operator in a cluster with two IP families.
var inputs = Inputs{ServerImage: defaultImage, VerifierImage: "ghcr.io/kkloud-io/echo-operator-verifier:v1", ClusterIPs: []string{"10.0.0.7", "fd00::7"}}

// newEcho returns an Echo with the defaults of the API server.
func newEcho(edits ...func(*echov1.Echo)) *echov1.Echo {
	echo := &echov1.Echo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "op-demo", Name: "hello", UID: "11111111-2222-3333-4444-555555555555"},
		Spec:       echov1.EchoSpec{Message: "xin chao operator", Replicas: 1, Port: 80},
	}
	for _, edit := range edits {
		edit(echo)
	}
	return echo
}

func withPage(title string) func(*echov1.Echo) {
	return func(echo *echov1.Echo) { echo.Spec.Page = &echov1.Page{Title: title, Color: "#2196F3"} }
}

func withStatusCode(code int32) func(*echov1.Echo) {
	return func(echo *echov1.Echo) { echo.Spec.StatusCode = code }
}

func ownServer(echo *echov1.Echo) {
	echo.Spec.Image = "docker.io/library/busybox:1.37"
	echo.Spec.Command = []string{"sh", "-c"}
	echo.Spec.Args = []string{`echo "$ECHO_TEXT"; exec sleep infinity`}
}

// withRoute sets the smallest route, with the defaults of the API server.
func withRoute(echo *echov1.Echo) {
	echo.Spec.Route = &echov1.Route{
		ParentRefs: []echov1.ParentRef{{Name: "public"}}, Scheme: "https",
		Paths: []echov1.Path{{Value: "/"}},
	}
}

// withVerify sets a verification with the defaults of the API server.
func withVerify(echo *echov1.Echo) {
	echo.Spec.Verify = &echov1.Verify{From: echov1.VerifyFromCluster, PeriodSeconds: 10, TimeoutSeconds: 2, FailureThreshold: 3}
}

func everyField(echo *echov1.Echo) { echo.Spec = values.EveryField() }

// objects has one child of each kind.
type objects map[string]Object

// desiredState returns the children of a new Echo, also those that it does not want.
func desiredState(echo *echov1.Echo) objects {
	all := objects{}
	for _, kind := range Kinds {
		all[kind.Name] = kind.New()
	}
	all.mutate(echo)
	return all
}

func (all objects) mutate(echo *echov1.Echo) {
	for _, kind := range Kinds {
		kind.Mutate(all[kind.Name], echo, inputs)
	}
}

func (all objects) deepCopy() objects {
	copied := objects{}
	for name, object := range all {
		copied[name] = object.DeepCopyObject().(Object)
	}
	return copied
}

func (all objects) deployment() *appsv1.Deployment { return all["Deployment"].(*appsv1.Deployment) }
func (all objects) pod() *corev1.PodSpec           { return &all.deployment().Spec.Template.Spec }
func (all objects) service() *corev1.Service       { return all["Service"].(*corev1.Service) }
func (all objects) budget() *policyv1.PodDisruptionBudget {
	return all["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget)
}
func (all objects) verifier() *appsv1.Deployment {
	return all["VerifierDeployment"].(*appsv1.Deployment)
}
func (all objects) verifierSet() *appsv1.DaemonSet {
	return all["VerifierDaemonSet"].(*appsv1.DaemonSet)
}
func (all objects) route() *gatewayv1.HTTPRoute { return all["HTTPRoute"].(*gatewayv1.HTTPRoute) }

func TestDesiredStateMatchesTheGoldenFiles(t *testing.T) {
	for name, echo := range map[string]*echov1.Echo{
		"minimal":     newEcho(),
		"page":        newEcho(withPage("Greetings"), withStatusCode(503), withVerify),
		"headers":     newEcho(withVerify, withStatusCode(308), withHeaders("Location", "https://example.com/?price=$5", "Cache-Control", "no-store")),
		"own-server":  newEcho(ownServer, withVerify),
		"route":       newEcho(withRoute),
		"verify":      newEcho(withVerify),
		"every-field": newEcho(everyField),
	} {
		directory := filepath.Join("testdata", name)
		if *update {
			if err := errors.Join(os.RemoveAll(directory), os.Mkdir(directory, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		all, wanted := desiredState(echo), []string{}
		for _, kind := range Kinds {
			if !kind.Wanted(echo) {
				continue
			}
			file := filepath.Join(directory, strings.ToLower(kind.Name)+".yaml")
			wanted = append(wanted, file)
			t.Run(name+"/"+kind.Name, func(t *testing.T) {
				got, err := yaml.Marshal(all[kind.Name])
				if err != nil {
					t.Fatal(err)
				}
				if *update {
					if err := os.WriteFile(file, got, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatalf("%v; run go test ./internal/children -update and review the file", err)
				}
				if string(got) != string(want) {
					t.Errorf("%s differs; run with -update and review the difference. Got:\n%s", file, got)
				}
			})
		}
		if files, _ := filepath.Glob(filepath.Join(directory, "*")); len(files) != len(wanted) {
			t.Errorf("files = %v, want those of the wanted children, %v; run with -update and review the difference", files, wanted)
		}
	}
}

// For every pair of specs, a live object that is edited from one to the other equals a new object.
func TestRemovedSettingsReturnToTheirDefault(t *testing.T) {
	specs := map[string]*echov1.Echo{
		"minimal": newEcho(), "page": newEcho(withPage("")), "own server": newEcho(ownServer),
		"status code": newEcho(withStatusCode(404)), "route": newEcho(withRoute), "verify": newEcho(withVerify),
		"headers": newEcho(withVerify, withHeaders("Content-Type", "application/json")), "every field": newEcho(everyField),
		"pod settings":            newEcho(withPod(everyPodSetting())),
		"the operator's selector": newEcho(withPod(echov1.PodSettings{NodeSelector: map[string]echov1.LabelValue{"kubernetes.io/os": "linux"}})),
	}
	for from, before := range specs {
		for to, after := range specs {
			t.Run(from+" to "+to, func(t *testing.T) {
				edited := desiredState(before)
				edited.mutate(after)
				equal(t, edited, desiredState(after))
			})
		}
	}
}

func TestFieldsOfExternalWritersAreKept(t *testing.T) {
	echo := newEcho(ownServer)
	live := desiredState(echo)
	deployment, service := live.deployment(), live.service()
	deployment.Labels["team"] = "blue"
	deployment.Annotations = map[string]string{"deployment.kubernetes.io/revision": "3"}
	deployment.OwnerReferences = append(deployment.OwnerReferences, metav1.OwnerReference{Kind: "Group", Name: "g", UID: "g"})
	deployment.OwnerReferences[0].BlockOwnerDeletion = nil // A change requires permission to delete.
	pod := &deployment.Spec.Template
	pod.Labels["mesh"] = "on"
	pod.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
	pod.Spec.DNSPolicy = corev1.DNSClusterFirst
	pod.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "mesh"}}, pod.Spec.Containers...)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "mesh"})
	pod.Spec.Containers[1].Env = append(pod.Spec.Containers[1].Env, corev1.EnvVar{Name: "MESH", Value: "on"})
	pod.Spec.Containers[1].VolumeMounts = append(pod.Spec.Containers[1].VolumeMounts, corev1.VolumeMount{Name: "mesh", MountPath: "/mesh"})
	service.Spec.ClusterIP = "10.96.1.2"
	service.Annotations = map[string]string{"lb": "off"}
	live.route().Spec.Rules[0].Name = new(gatewayv1.SectionName("rule"))
	live.route().Spec.Rules[0].Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: new(gatewayv1.Duration("1s"))}

	want := live.deepCopy()
	live.mutate(echo)
	equal(t, live, want)

	// Without a custom server, its variables are removed. Other variables are kept.
	live.mutate(newEcho())
	if env := live.pod().Containers[1].Env; len(env) != 1 || env[0].Name != "MESH" {
		t.Errorf("environment variables = %v, want only MESH", env)
	}
}

// FuzzOwnership changes each owned field of every kind. These changes also add fields that a new object does not have.
func TestDriftIsReverted(t *testing.T) {
	echo := newEcho(withRoute, func(e *echov1.Echo) {
		e.Spec.Replicas, e.Spec.Route.Hostnames = 2, []string{"a.example.com"}
	})
	want := desiredState(echo)
	for name, drift := range map[string]func(objects){
		"no security contexts": func(all objects) {
			all.pod().Containers[0].SecurityContext, all.pod().SecurityContext = nil, nil
		},
		// OpenShift's SCC restricted-v2 rejects users and groups that it did not assign.
		"users and groups": func(all objects) {
			for _, pod := range []*corev1.PodSpec{all.pod(), &all.verifier().Spec.Template.Spec} {
				pod.SecurityContext.RunAsUser, pod.SecurityContext.RunAsGroup = new(int64(65532)), new(int64(7))
				container := pod.Containers[0].SecurityContext
				container.RunAsUser, container.RunAsGroup = new(int64(0)), new(int64(7))
			}
		},
		"weakened isolation": func(all objects) {
			pod := all.pod()
			pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.SecurityContext.RunAsNonRoot = true, true, true, new(false)
			pod.Containers[0].SecurityContext.Capabilities = &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}
			pod.Containers[0].Ports[0].HostPort = 80
			pod.Containers[0].ReadinessProbe.HTTPGet.Host = "example.com"
			pod.Containers[0].ReadinessProbe.InitialDelaySeconds = 3600
		},
		"pause": func(all objects) { all.deployment().Spec.Paused = true },
		"service": func(all objects) {
			spec := &all.service().Spec
			spec.Type = corev1.ServiceTypeNodePort
			spec.Selector = map[string]string{"app": "other"}
			spec.Ports[0].Port = 81
		},
		"service of another type": func(all objects) {
			spec := &all.service().Spec
			spec.ExternalName, spec.LoadBalancerSourceRanges = "example.com", []string{"192.0.2.0/24"}
		},
		"budget": func(all objects) {
			spec := &all.budget().Spec
			spec.MinAvailable, spec.MaxUnavailable = spec.MaxUnavailable, nil
		},
		"verifier": func(all objects) {
			spec := &all.verifier().Spec
			spec.Paused, spec.MinReadySeconds = true, 9
			spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{}}
			spec.Template.Labels[EchoLabel] = echo.Name
			spec.Template.Labels[ResponseLabel] = "0123456789abcdef"
			spec.Template.Spec.Containers[0].Args = nil
			spec.Template.Spec.Containers[0].LivenessProbe = &corev1.Probe{}
			spec.Template.Spec.Containers[1].ReadinessProbe.HTTPGet.Path = "/metrics"
			spec.Template.Spec.SecurityContext.RunAsUser = new(int64(0))
			spec.Template.Spec.AutomountServiceAccountToken = new(true)
		},
		"verifier on every node": func(all objects) {
			spec := &all.verifierSet().Spec
			spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType}
			spec.Template.Labels[EchoLabel] = echo.Name
			spec.Template.Spec.Containers = spec.Template.Spec.Containers[:1]
			spec.Template.Spec.NodeSelector = nil
		},
		"route": func(all objects) {
			spec := &all.route().Spec
			spec.Hostnames, spec.ParentRefs = append(spec.Hostnames, "evil.example.com"), append(spec.ParentRefs, spec.ParentRefs...)
			spec.Rules = append(spec.Rules, spec.Rules...)
			spec.Rules[0].BackendRefs[0].Name, spec.Rules[0].Matches = "evil", nil
			spec.Rules[0].Filters = []gatewayv1.HTTPRouteFilter{{Type: gatewayv1.HTTPRouteFilterResponseHeaderModifier}}
		},
	} {
		live := want.deepCopy()
		drift(live)
		t.Run(name, func(t *testing.T) {
			live.mutate(echo)
			equal(t, live, want)
		})
	}
}

func TestExternalURLHasSchemeHostnamePortAndPath(t *testing.T) {
	route := func(scheme string, port int32, path string, hostnames ...string) *echov1.Route {
		return &echov1.Route{
			Scheme: scheme, Hostnames: hostnames,
			ParentRefs: []echov1.ParentRef{{Name: "g", Port: port}, {Name: "h", Port: 1}},
			Paths:      []echov1.Path{{Value: path}, {Value: "/second"}},
		}
	}
	for want, route := range map[string]*echov1.Route{
		"https://a.example/":          route("https", 0, "/", "a.example", "b.example"),
		"https://a.example/x":         route("https", 443, "/x", "a.example"),
		"http://a.example/":           route("http", 80, "/", "a.example"),
		"https://a.example:80/":       route("https", 80, "/", "a.example"),
		"http://a.example:8443/a%20b": route("http", 8443, "/a%20b", "a.example"),
	} {
		if got := ExternalURL(newEcho(func(e *echov1.Echo) { e.Spec.Route = route }), inputs); got != want {
			t.Errorf("ExternalURL = %q, want %q", got, want)
		}
	}
	for name, route := range map[string]*echov1.Route{
		"no route": nil, "no hostname": route("https", 0, "/"), "wildcard": route("https", 0, "/", "*.example", "a.example"),
	} {
		if got := ExternalURL(newEcho(func(e *echov1.Echo) { e.Spec.Route = route }), inputs); got != "" {
			t.Errorf("%s: ExternalURL = %q, want none", name, got)
		}
	}
}

func TestResourcesAreRoundedAsTheAPIServerStoresThem(t *testing.T) {
	pod := desiredState(newEcho(func(e *echov1.Echo) {
		e.Spec.Resources.Limits = echov1.ResourceList{corev1.ResourceCPU: resource.MustParse("100500u")}
	})).pod()
	if got := pod.Containers[0].Resources.Limits[corev1.ResourceCPU]; got.String() != "101m" {
		t.Errorf("CPU limit = %s, want 101m", got.String())
	}
}

func TestShareUsesTheSameMemoryForEqualValues(t *testing.T) {
	own := echov1.Resources{Limits: echov1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}}
	one := desiredState(newEcho(withVerify))
	two := desiredState(newEcho(withVerify, func(e *echov1.Echo) { e.Name, e.Spec.Resources = "two", own }))
	for _, deployment := range []*appsv1.Deployment{one.deployment(), two.deployment(), one.verifier(), two.verifier()} {
		Share(deployment)
	}
	if one.pod().TopologySpreadConstraints[0].LabelSelector != one.deployment().Spec.Selector {
		t.Error("two equal selectors of a Deployment are not shared")
	}
	first, second := one.verifier().Spec.Template.Spec.Containers[0].Resources, two.verifier().Spec.Template.Spec.Containers[0].Resources
	if reflect.ValueOf(first.Limits).Pointer() != reflect.ValueOf(second.Limits).Pointer() ||
		reflect.ValueOf(first.Requests).Pointer() != reflect.ValueOf(second.Requests).Pointer() {
		t.Error("two verifiers with equal resources do not share them")
	}
	if got := two.pod().Containers[0].Resources.Limits; !equality.Semantic.DeepEqual(got, corev1.ResourceList(own.Limits)) {
		t.Errorf("limits = %v, want %v: Share replaced different values", got, own.Limits)
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

package linters

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
)

// check implements a rule of another linter that neither kube-score nor kubesec checks for every container.
type check struct {
	name string
	// find returns the objects that violate the rule.
	find func(set) []client.Object
	// violate changes valid manifests so that they violate the rule.
	violate func(*set)
}

var checks = []check{
	{"kinds", each(func(_ set, o client.Object) bool { return !slices.Contains(kinds, kindOf(o)) }),
		func(s *set) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: namespace}}
			secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			s.objects = append(s.objects, secret)
		}},
	{"namespace", each(func(_ set, o client.Object) bool {
		return isNamespaced(o) && (o.GetNamespace() == "" || o.GetNamespace() == metav1.NamespaceDefault)
	}), func(s *set) { s.objects[len(s.objects)-1].SetNamespace("default") }},

	// Pods
	{"image-digest", each(func(_ set, o client.Object) bool {
		return slices.ContainsFunc(imagesOf(o), func(image string) bool { return !strings.Contains(image, "@sha256:") })
	}), container(func(c *corev1.Container) {
		c.Env = []corev1.EnvVar{{Name: "RELATED_IMAGE_OTHER", Value: "example.com/other:1.0"}}
	})},
	{"volumes", pods(func(_ set, pod corev1.PodSpec) bool {
		return slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil })
	}), pod(func(p *corev1.PodSpec) {
		p.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	})},
	{"service-account", pods(func(s set, pod corev1.PodSpec) bool {
		if pod.DeprecatedServiceAccount != "" && pod.DeprecatedServiceAccount != pod.ServiceAccountName {
			return true
		}
		tokenless := pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken
		return !tokenless && !s.hasAccount(pod.ServiceAccountName)
	}), pod(func(p *corev1.PodSpec) { p.ServiceAccountName, p.AutomountServiceAccountToken = "default", nil })},
	{"unsafe-sysctls", pods(func(_ set, pod corev1.PodSpec) bool {
		return pod.SecurityContext != nil && slices.ContainsFunc(pod.SecurityContext.Sysctls, func(sysctl corev1.Sysctl) bool {
			return slices.ContainsFunc([]string{"kernel.msg", "kernel.sem", "kernel.shm", "fs.mqueue.", "net."},
				func(prefix string) bool { return strings.HasPrefix(sysctl.Name, prefix) })
		})
	}), pod(func(p *corev1.PodSpec) { p.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "kernel.sem", Value: "1"}} })},
	{"spread", each(func(_ set, d *appsv1.Deployment) bool {
		return ptr.Deref(d.Spec.Replicas, 1) > 1 && !slices.ContainsFunc(d.Spec.Template.Spec.TopologySpreadConstraints,
			func(c corev1.TopologySpreadConstraint) bool {
				return c.TopologyKey == corev1.LabelHostname && selects(c.LabelSelector, d.Spec.Template.Labels)
			})
	}), pod(func(p *corev1.PodSpec) { p.TopologySpreadConstraints = nil })},

	// Containers and init containers
	{"privileges", containers(func(c corev1.Container) bool {
		s := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
		return ptr.Deref(s.AllowPrivilegeEscalation, true) || ptr.Deref(s.Privileged, false) ||
			!ptr.Deref(s.ReadOnlyRootFilesystem, false) || !ptr.Deref(s.RunAsNonRoot, true) || s.RunAsUser != nil || s.RunAsGroup != nil ||
			s.SeccompProfile != nil || ptr.Deref(s.ProcMount, corev1.DefaultProcMount) != corev1.DefaultProcMount
	}), pod(func(p *corev1.PodSpec) { p.InitContainers = []corev1.Container{{Name: "before"}} })},
	{"capabilities", containers(func(c corev1.Container) bool {
		s := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
		return s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0
	}), container(func(c *corev1.Container) { c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_RAW"} })},
	{"secrets", containers(func(c corev1.Container) bool {
		return len(c.EnvFrom) > 0 || slices.ContainsFunc(c.Env, func(env corev1.EnvVar) bool {
			from := ptr.Deref(env.ValueFrom, corev1.EnvVarSource{})
			return from.SecretKeyRef != nil || from.ConfigMapKeyRef != nil || (env.Value != "" && secret.MatchString(env.Name))
		})
	}), container(func(c *corev1.Container) { c.Env = []corev1.EnvVar{{Name: "API_TOKEN", Value: "x"}} })},
	{"host-port", containers(func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 })
	}), container(func(c *corev1.Container) { c.Ports[0].HostPort = 8443 })},
	{"privileged-ports", containers(func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.ContainerPort < 1024 })
	}), container(func(c *corev1.Container) { c.Ports[0].ContainerPort = 22 })},
	{"port-names", containers(func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return len(validation.IsValidPortName(p.Name)) > 0 })
	}), container(func(c *corev1.Container) { c.Ports[0].Name = "8443" })},
	{"probe-ports", containers(func(c corev1.Container) bool {
		return slices.ContainsFunc([]*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}, func(p *corev1.Probe) bool {
			switch {
			case p == nil || p.Exec != nil:
				return false
			case p.HTTPGet != nil:
				return !hasPort(c, p.HTTPGet.Port)
			case p.TCPSocket != nil:
				return !hasPort(c, p.TCPSocket.Port)
			}
			return !hasPort(c, intstr.FromInt32(p.GRPC.Port))
		})
	}), container(func(c *corev1.Container) { c.ReadinessProbe.HTTPGet.Port = intstr.FromString("other") })},

	// Services and budgets
	{"service-type", each(func(_ set, service *corev1.Service) bool {
		return !slices.Contains([]corev1.ServiceType{"", corev1.ServiceTypeClusterIP}, service.Spec.Type) ||
			len(service.Spec.ExternalIPs) > 0 || service.Spec.ExternalName != ""
	}), change(func(service *corev1.Service) { service.Spec.Type = corev1.ServiceTypeLoadBalancer })},
	{"service-ports", each(func(s set, service *corev1.Service) bool {
		return slices.ContainsFunc(service.Spec.Ports, func(port corev1.ServicePort) bool {
			return !slices.ContainsFunc(of[*appsv1.Deployment](s), func(d *appsv1.Deployment) bool {
				return d.Namespace == service.Namespace && labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) &&
					slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return hasPort(c, port.TargetPort) })
			})
		})
	}), change(func(service *corev1.Service) { service.Spec.Ports[0].TargetPort = intstr.FromString("other") })},
	{"budgets", each(func(s set, budget *policyv1.PodDisruptionBudget) bool {
		most := ptr.Deref(budget.Spec.MaxUnavailable, intstr.FromInt32(0))
		return budget.Spec.UnhealthyPodEvictionPolicy == nil || budget.Spec.MinAvailable != nil ||
			slices.Contains([]string{"0", "0%"}, most.String()) ||
			!slices.ContainsFunc(of[*appsv1.Deployment](s), func(d *appsv1.Deployment) bool {
				return d.Namespace == budget.Namespace && selects(budget.Spec.Selector, d.Spec.Template.Labels)
			})
	}), change(func(budget *policyv1.PodDisruptionBudget) {
		budget.Spec.MaxUnavailable = new(intstr.FromString("0%"))
	})},

	// Permissions of all roles, not only of the operator's own
	{"permissions", roles(func(_ set, _ client.Object, rule rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs), dangerous.MatchString) ||
			(slices.Contains(rule.Verbs, "deletecollection") && !slices.Equal(rule.APIGroups, []string{"kkloud.io"}))
	}), permission("", "services/status", "update")},
	{"access-to-create-pods", roles(func(_ set, _ client.Object, rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, "create") && slices.ContainsFunc(rule.Resources, func(r string) bool {
			return slices.Contains([]string{"pods", "deployments", "statefulsets", "replicasets", "cronjobs", "jobs", "daemonsets", "replicationcontrollers"}, r)
		})
	}), permission("", "pods", "create")},
	{"aggregated-permissions", roles(func(_ set, role client.Object, rule rbacv1.PolicyRule) bool {
		aggregated := false
		for label := range role.GetLabels() {
			aggregated = aggregated || strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-")
		}
		return aggregated && !slices.Equal(rule.APIGroups, []string{"kkloud.io"})
	}), permission("", "configmaps", "get")},
	{"bindings", each(func(s set, o client.Object) bool {
		var ref rbacv1.RoleRef
		var subjects []rbacv1.Subject
		switch binding := o.(type) {
		case *rbacv1.RoleBinding:
			ref, subjects = binding.RoleRef, binding.Subjects
		case *rbacv1.ClusterRoleBinding:
			ref, subjects = binding.RoleRef, binding.Subjects
		default:
			return false
		}
		return !slices.ContainsFunc(s.objects, func(o client.Object) bool { return kindOf(o) == ref.Kind && o.GetName() == ref.Name }) ||
			slices.ContainsFunc(subjects, func(subject rbacv1.Subject) bool {
				return subject.Kind != "ServiceAccount" || !s.hasAccount(subject.Name)
			})
	}), change(func(binding *rbacv1.ClusterRoleBinding) { binding.RoleRef.Name = "cluster-admin" })},
}

// kinds lists the kinds that the checks cover. Rules of other linters for Ingresses, autoscalers, webhooks,
// StatefulSets, Jobs, ConfigMaps and the like do not apply as long as the manifests contain none.
var kinds = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding",
	"Deployment", "DaemonSet", "Service", "PodDisruptionBudget", "NetworkPolicy",
}

var (
	secret    = regexp.MustCompile(`(?i)secret|token|password|credential|api_?key`)
	dangerous = regexp.MustCompile(`[*]|^(bind|escalate|impersonate|approve|sign|secrets|(pods|nodes|serviceaccounts)/.*|nodes|serviceaccounts` +
		`|services/status|(cluster)?role(binding)?s|certificatesigningrequests.*|.*webhookconfigurations|signers)$`)
)

func runChecks(t *testing.T, s set) []finding {
	t.Helper()
	var found []finding
	for _, c := range checks {
		for _, object := range c.find(s) {
			found = append(found, finding{own, c.name, s.nameOf(kindOf(object), object.GetName())})
		}
	}
	return found
}

func TestCheckReportsViolation(t *testing.T) {
	all := sets(t)
	valid := set{objects: slices.Concat(all[0].objects, hello(all).objects)}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			changed := valid.copy()
			c.violate(&changed)
			if before, after := len(c.find(valid)), len(c.find(changed)); after <= before {
				t.Errorf("check reports %d objects in valid manifests and %d after the violation, want more", before, after)
			}
		})
	}
}

// One violation for each result format shows that the tests read the findings of the linters.
func TestLinterReportsViolation(t *testing.T) {
	valid := hello(sets(t))
	for rule, violate := range map[finding]func(*set){
		{"kube-score", "container-image-tag", ""}:                container(func(c *corev1.Container) { c.Image = "example.com/server:latest" }),
		{"kube-score", "container-resources", ""}:                container(func(c *corev1.Container) { c.Resources.Limits = nil }),
		{"kube-score", "pod-probes", ""}:                         container(func(c *corev1.Container) { c.ReadinessProbe = nil }),
		{"kube-score", "container-seccomp-profile", ""}:          pod(func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil }),
		{"kube-score", "deployment-has-poddisruptionbudget", ""}: func(s *set) { s.objects = s.objects[:2] },
		{"kube-score", "service-targets-pod", ""}:                change(func(s *corev1.Service) { s.Spec.Selector["other"] = "label" }),
		{"kube-score", "deployment-strategy", ""}: change(func(d *appsv1.Deployment) {
			d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		}),
		{"kubesec", "HostPID", ""}:     pod(func(p *corev1.PodSpec) { p.HostPID = true }),
		{"kubesec", "HostIPC", ""}:     pod(func(p *corev1.PodSpec) { p.HostIPC = true }),
		{"kubesec", "HostNetwork", ""}: pod(func(p *corev1.PodSpec) { p.HostNetwork = true }),
		{"kubesec", "HostAliases", ""}: pod(func(p *corev1.PodSpec) {
			p.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"a"}}}
		}),
		{"kubesec", "RunAsNonRoot", ""}:                 pod(func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil }),
		{"kubesec", "ReadOnlyRootFilesystem", ""}:       container(func(c *corev1.Container) { c.SecurityContext.ReadOnlyRootFilesystem = nil }),
		{"kubesec", "AutomountServiceAccountToken", ""}: pod(func(p *corev1.PodSpec) { p.AutomountServiceAccountToken = nil }),
		{"kubesec", "LimitsMemory", ""}:                 container(func(c *corev1.Container) { delete(c.Resources.Limits, corev1.ResourceMemory) }),
	} {
		t.Run(rule.rule, func(t *testing.T) {
			changed, kind := valid.copy(), "Deployment"
			if rule.rule == "service-targets-pod" {
				kind = "Service"
			}
			rule.object = valid.nameOf(kind, "echo-hello")
			violate(&changed)
			if slices.Contains(linters[rule.linter](t, valid), rule) {
				t.Errorf("%s reports the rule for valid manifests", rule.linter)
			}
			if !slices.Contains(linters[rule.linter](t, changed), rule) {
				t.Errorf("%s does not report the violation", rule.linter)
			}
		})
	}
}

// hello returns the children of the sample Echo hello.
func hello(all []set) set {
	return all[slices.IndexFunc(all, func(s set) bool { return s.name == "sample-hello" })]
}

// of returns the objects of one kind.
func of[T client.Object](s set) []T {
	var found []T
	for _, object := range s.objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// each returns a function that finds the objects of one type for which bad is true.
func each[T client.Object](bad func(set, T) bool) func(set) []client.Object {
	return func(s set) []client.Object {
		var found []client.Object
		for _, object := range of[T](s) {
			if bad(s, object) {
				found = append(found, object)
			}
		}
		return found
	}
}

func pods(bad func(set, corev1.PodSpec) bool) func(set) []client.Object {
	return each(func(s set, o client.Object) bool {
		template := templateOf(o)
		return template != nil && bad(s, template.Spec)
	})
}

func containers(bad func(corev1.Container) bool) func(set) []client.Object {
	return pods(func(_ set, pod corev1.PodSpec) bool {
		return slices.ContainsFunc(slices.Concat(pod.InitContainers, pod.Containers), bad)
	})
}

func roles(bad func(set, client.Object, rbacv1.PolicyRule) bool) func(set) []client.Object {
	return each(func(s set, o client.Object) bool {
		var rules []rbacv1.PolicyRule
		switch role := o.(type) {
		case *rbacv1.Role:
			rules = role.Rules
		case *rbacv1.ClusterRole:
			rules = role.Rules
		}
		return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return bad(s, o, rule) })
	})
}

// change, pod, container and permission return functions that change every such object in a set.
func change[T client.Object](edit func(T)) func(*set) {
	return func(s *set) {
		for _, object := range of[T](*s) {
			edit(object)
		}
	}
}

func pod(edit func(*corev1.PodSpec)) func(*set) {
	return change(func(d *appsv1.Deployment) { edit(&d.Spec.Template.Spec) })
}

func container(edit func(*corev1.Container)) func(*set) {
	return pod(func(p *corev1.PodSpec) { edit(&p.Containers[0]) })
}

func permission(group, resource, verb string) func(*set) {
	return change(func(role *rbacv1.ClusterRole) {
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}})
	})
}

func kindOf(o client.Object) string { return o.GetObjectKind().GroupVersionKind().Kind }

func isNamespaced(o client.Object) bool {
	return !slices.Contains([]string{"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}, kindOf(o))
}

func (s set) hasAccount(name string) bool {
	return name != "default" && slices.ContainsFunc(of[*corev1.ServiceAccount](s), func(a *corev1.ServiceAccount) bool { return a.Name == name })
}

// templateOf returns the pod template of a Deployment or a DaemonSet, or nil.
func templateOf(o client.Object) *corev1.PodTemplateSpec {
	switch workload := o.(type) {
	case *appsv1.Deployment:
		return &workload.Spec.Template
	case *appsv1.DaemonSet:
		return &workload.Spec.Template
	}
	return nil
}

// versioned matches an image of the operator that has a version tag until the release.
// test/manifests/versions checks that tag.
var versioned = regexp.MustCompile(`/echo-operator(-verifier)?:v`)

// imagesOf returns the images that a Deployment or a DaemonSet must name by digest: the image of a server
// or a verifier, and the images that the operator gives to them.
func imagesOf(o client.Object) []string {
	template := templateOf(o)
	if template == nil {
		return nil
	}
	var images []string
	for _, c := range template.Spec.Containers {
		if o.GetLabels()[children.ManagedByLabel] == children.ManagedBy {
			images = append(images, c.Image)
		}
		for _, env := range c.Env {
			if strings.HasPrefix(env.Name, "RELATED_IMAGE_") {
				images = append(images, env.Value)
			}
		}
	}
	return slices.DeleteFunc(images, versioned.MatchString)
}

func hasPort(c corev1.Container, port intstr.IntOrString) bool {
	return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return (port.Type == intstr.String && p.Name == port.StrVal) || (port.Type == intstr.Int && p.ContainerPort == port.IntVal)
	})
}

func selects(selector *metav1.LabelSelector, podLabels map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(podLabels))
}

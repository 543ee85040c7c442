package children

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	echov1 "github.com/kkloud-io/echo-operator/api/v1"
	"github.com/kkloud-io/echo-operator/internal/testing/values"
)

// removed matches the paths of the fields that the mutate functions remove or reset to a zero value. They
// set those of a new object, and change no other field.
var removed = paths(
	`spec\.(paused|externalName|loadBalancerSourceRanges|selector|ports|strategy\.rollingUpdate|minAvailable|minReadySeconds)`,
	`spec\.(parentRefs|hostnames)\[`, `spec\.rules\[(0\]\.(matches|filters|backendRefs)|[1-9])`, // Further rules are removed.
	`spec\.template\.metadata\.labels\.kkloud\.io/echo|metadata\.annotations\.(`+PodSettingsAnnotation+`|`+InheritedAnnotation+`)`,
	`spec\.template\.spec\.`+oneOf(
		`affinity\.nodeAffinity\.required.*\.matchExpressions\[.*kubernetes\.io/arch.*amd64 arm64.*\]`,
		`host(Network|PID|IPC)|securityContext\.(runAs|seccompProfile|sysctls\[`+unprivilegedPorts+`\])`,
		`topologySpreadConstraints\[(kubernetes\.io/hostname|topology\.kubernetes\.io/zone) ScheduleAnyway\]`,
		`containers\[(echo|dns|service|route)\]\.`+oneOf(
			`command|args|env\[ECHO_(TEXT|PORT)( \d)?\]|resources\.(limits|requests)|lifecycle\.preStop`,
			`ports\[(kkloud-echo|verify-\w+)\]\.host(Port|IP)`,
			`securityContext\.(capabilities|privileged|runAs)|livenessProbe`,
			`(readiness|liveness|startup)Probe\.(exec|tcpSocket|grpc|initialDelaySeconds|httpGet\.host)`,
		),
	),
)

// probes match those of a custom server. Without a readinessPath, they are removed.
var probes = paths(`spec\.template\.spec\.containers\[echo\]\.(startup|readiness|liveness)Probe`)

// startupProbe matches that of a server, which the default server does not have.
var startupProbe = paths(`spec\.template\.spec\.containers\[echo\]\.startupProbe`)

// readOnly matches the file system of a server, which a custom server may write to.
var readOnly = paths(`spec\.template\.spec\.containers\[echo\]\.securityContext\.readOnlyRootFilesystem`)

// isUnwantedLayer reports whether a field is in the container of a layer that is not verified.
func isUnwantedLayer(echo *echov1.Echo, field string) bool {
	return slices.ContainsFunc(allLayers, func(l layer) bool {
		return !slices.Contains(layers(echo, inputs), l) && strings.HasPrefix(field, "spec.template.spec.containers["+l.name+"]")
	})
}

func paths(patterns ...string) *regexp.Regexp { return regexp.MustCompile("^" + oneOf(patterns...)) }
func oneOf(patterns ...string) string         { return "(" + strings.Join(patterns, "|") + ")" }

// FuzzOwnership mutates objects with random values in all fields. The owned fields become those of a
// new object, every other field keeps its value, and a second mutation changes nothing.
func FuzzOwnership(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(binary.BigEndian.AppendUint64(nil, seed), binary.BigEndian.AppendUint64(nil, ^seed))
	}
	f.Fuzz(func(t *testing.T, data, filling []byte) {
		echo := values.Random(data)
		want := desiredState(echo)
		for _, kind := range Kinds {
			object := kind.New()
			filler(filling).Fill(object)
			removeDuplicates(object)
			before := fields(t, object)
			kind.Mutate(object, echo, inputs)
			after, owned := fields(t, object), fields(t, want[kind.Name])
			for field, value := range owned {
				if !strings.HasPrefix(field, "status.") && !reflect.DeepEqual(after[field], value) {
					t.Errorf("%s %s = %v, want %v", kind.Name, field, after[field], value)
				}
			}
			all := maps.Clone(before)
			maps.Copy(all, after)
			for field := range all {
				_, isOwned := owned[field]
				isRemoved := removed.MatchString(field) || isUnwantedLayer(echo, field) || !hasProbes(echo) && probes.MatchString(field) ||
					!isCustomServer(echo) && startupProbe.MatchString(field) || isCustomServer(echo) && readOnly.MatchString(field)
				if isOwned && !strings.HasPrefix(field, "status.") || isRemoved {
					continue
				}
				if !reflect.DeepEqual(before[field], after[field]) {
					t.Errorf("%s %s = %v, want %v as before", kind.Name, field, after[field], before[field])
				}
			}
			again := object.DeepCopyObject().(Object)
			kind.Mutate(again, echo, inputs)
			if !equality.Semantic.DeepEqual(again, object) {
				t.Errorf("a second mutation changes the %s:\n%s", kind.Name, diff.Diff(object, again))
			}
		}
	})
}

// filler fills objects with values that often collide with those of the operator.
func filler(data []byte) *randfill.Filler {
	text := func(s *string, c randfill.Continue) {
		*s = []string{"a", "b", "c", "d", "", "echo", "tmp", "/tmp", "http", "kkloud-echo", "ECHO_TEXT", "ECHO_PORT", unprivilegedPorts, "kkloud.io/echo",
			corev1.LabelTopologyZone, corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, PodSettingsAnnotation,
			VerifiesLabel, ResponseLabel, "verify-dns"}[c.Intn(22)]
	}
	return randfill.NewFromGoFuzz(data).NilChance(0.3).NumElements(0, 4).Funcs(
		text,
		func(a *corev1.UnsatisfiableConstraintAction, c randfill.Continue) {
			*a = []corev1.UnsatisfiableConstraintAction{corev1.ScheduleAnyway, corev1.DoNotSchedule}[c.Intn(2)]
		},
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		// The operator changes no other node selector.
		func(s *corev1.NodeSelector, _ randfill.Continue) { *s = *architectures.DeepCopy() },
		func(p *intstr.IntOrString, c randfill.Continue) { *p = intstr.FromInt32(c.Int31n(65536)) },
		// The operator does not mutate an object with another controller.
		func(ref *metav1.OwnerReference, c randfill.Continue) { c.Fill(&ref.Name); c.Fill(&ref.UID) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString("{}") },
		func(pod *corev1.PodSpec, c randfill.Continue) {
			c.FillNoCustom(pod)
			if len(pod.Containers) > 0 {
				pod.Containers[c.Intn(len(pod.Containers))].Name = []string{containerName, "dns", "service", "route"}[c.Intn(4)]
			}
		},
	)
}

// removeDuplicates removes what the API server rejects: items with the same key, and a template that
// does not match the selector.
func removeDuplicates(object Object) {
	switch o := object.(type) {
	case *corev1.Service:
		withoutDuplicates(&o.Spec.Ports, func(p corev1.ServicePort) string { return p.Name })
	case *appsv1.Deployment:
		removeDuplicatesOfPods(o.Spec.Selector, &o.Spec.Template)
	case *appsv1.DaemonSet:
		removeDuplicatesOfPods(o.Spec.Selector, &o.Spec.Template)
	}
}

// removeDuplicatesOfPods also makes the template match the selector.
func removeDuplicatesOfPods(selector *metav1.LabelSelector, template *corev1.PodTemplateSpec) {
	pod := &template.Spec
	if selector != nil {
		template.Labels = labels.Merge(template.Labels, selector.MatchLabels)
	}
	withoutDuplicates(&pod.Tolerations, tolerationKey)
	withoutDuplicates(&pod.ImagePullSecrets, secretKey)
	withoutDuplicates(&pod.Containers, func(c corev1.Container) string { return c.Name })
	withoutDuplicates(&pod.Volumes, func(v corev1.Volume) string { return v.Name })
	withoutDuplicates(&pod.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) string { return c.TopologyKey + string(c.WhenUnsatisfiable) })
	if pod.SecurityContext != nil {
		withoutDuplicates(&pod.SecurityContext.Sysctls, func(s corev1.Sysctl) string { return s.Name })
	}
	for i := range pod.Containers {
		withoutDuplicates(&pod.Containers[i].Ports, func(p corev1.ContainerPort) string { return p.Name })
		withoutDuplicates(&pod.Containers[i].VolumeMounts, func(m corev1.VolumeMount) string { return m.MountPath })
	}
}

func withoutDuplicates[T any, K comparable](items *[]T, key func(T) K) {
	seen := map[K]bool{}
	*items = slices.DeleteFunc(*items, func(item T) bool {
		again := seen[key(item)]
		seen[key(item)] = true
		return again
	})
}

// fields returns the values of an object by path, for example spec.containers[echo].image.
func fields(t *testing.T, object any) map[string]any {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var decoded any
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	flatten(decoded, "", found)
	return found
}

// keys are the fields that identify an item of a list.
var keys = map[string][]string{
	"volumeMounts": {"mountPath"}, "topologySpreadConstraints": {"topologyKey", "whenUnsatisfiable"}, "ownerReferences": {"uid"},
	"tolerations": {"key", "operator", "value", "effect"}, "imagePullSecrets": {"name"},
	"matchExpressions": {"key", "operator", "values"}, "ports": {"name"}, "containers": {"name"}, "volumes": {"name"}, "env": {"name"}, "sysctls": {"name"},
}

func flatten(value any, path string, found map[string]any) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			flatten(field, strings.TrimPrefix(path+"."+name, "."), found)
		}
	case []any:
		count := map[string]int{}
		for i, item := range v {
			key := fmt.Sprint(i)
			if object, ok := item.(map[string]any); ok {
				if names := keys[path[strings.LastIndex(path, ".")+1:]]; names != nil {
					var values []string
					for _, name := range names {
						values = append(values, fmt.Sprint(object[name]))
					}
					key = strings.Join(values, " ")
				}
			}
			if count[key]++; count[key] > 1 {
				key = fmt.Sprint(key, " ", count[key])
			}
			flatten(item, path+"["+key+"]", found)
		}
	default:
		found[path] = value
	}
}

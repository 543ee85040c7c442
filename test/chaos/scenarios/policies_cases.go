package scenarios

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// policyCase is a policy that changes one kind of object of an Echo of its own.
type policyCase struct {
	name     string
	resource schema.GroupVersionResource
	// create and update are the operations that it changes.
	create, update bool
	// patch is the CEL expression of a JSON patch.
	patch string
	// unstable is true if the result differs at each write, or does not last.
	unstable bool
}

// kind returns the first kind of child that has the resource, or an empty kind.
func (c policyCase) kind() children.Kind {
	if i := slices.IndexFunc(children.Kinds, func(kind children.Kind) bool { return kind.Resource == c.resource }); i >= 0 {
		return children.Kinds[i]
	}
	return children.Kind{}
}

// generatedPolicies returns a policy for each change of the child, at creations, at updates and at
// both.
func generatedPolicies(kind children.Kind, child client.Object) (all []policyCase, err error) {
	changes, err := kinds.Changes(child)
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		for _, at := range []policyCase{{name: "create", create: true}, {name: "update", update: true}, {name: "create and update", create: true, update: true}} {
			at.name = fmt.Sprintf("%s %s at %s", kind.Name, c, at.name)
			at.resource, at.patch = kind.Resource, mutation(c)
			// The garbage collector deletes a child without its owner.
			at.unstable = strings.HasPrefix(c.String(), "metadata.ownerReferences[0]")
			all = append(all, at)
		}
	}
	return all, nil
}

const (
	podSpec   = "/spec/template/spec/"
	server    = podSpec + "containers/0/"
	ours      = "object.spec.template.spec.containers[0]"
	oldServer = "oldObject.spec.template.spec.containers[0]"
	component = "/metadata/labels/app.kubernetes.io~1component"
)

// flip is a value that differs from the one that is stored.
func flip(stored, a, b string) string {
	return fmt.Sprintf("request.operation == \"UPDATE\" && %s == %s ? %s : %s", stored, a, b, a)
}

// onlyServer applies a patch only where no container was added yet.
func onlyServer(patch string) string {
	return "size(object.spec.template.spec.containers) == 1 ? " + patch + " : []"
}

// policiesOfRealLife are policies as clusters have them.
func policiesOfRealLife() []policyCase {
	sidecar := kinds.Sidecar()
	all := []policyCase{
		ofDeployments("rewrites the image registry", jsonPatch(
			"replace", server+"image", fmt.Sprintf(`%s.image.replace("docker.io/", "mirror.example.com/")`, ours))),
		ofDeployments("raises requests and limits, and adds ephemeral storage", jsonPatch(
			"add", server+"resources", literal(map[string]any{
				"requests": map[string]any{"cpu": "50m", "memory": "52Mi", "ephemeral-storage": "1Gi"},
				"limits":   map[string]any{"cpu": "50m", "memory": "52Mi", "ephemeral-storage": "1Gi"},
			}),
			"add", podSpec+"tolerations", literal([]any{map[string]any{"key": "arch", "operator": "Equal", "value": "amd64", "effect": "NoSchedule"}}))),
		ofDeployments("adds security settings", jsonPatch(
			"add", podSpec+"securityContext/fsGroup", "1000650000",
			"add", podSpec+"securityContext/supplementalGroups", "[1000650000]",
			"add", podSpec+"securityContext/seLinuxOptions", `{"level": "s0:c26,c5"}`,
			"add", server+"securityContext/runAsUser", "1000650000",
			"add", server+"securityContext/seccompProfile", `{"type": "RuntimeDefault"}`)),
		ofDeployments("sets the user", jsonPatch("add", podSpec+"securityContext/runAsUser", "1000650000")),
		ofDeployments("adds a container before ours", onlyServer(jsonPatch("add", podSpec+"containers/0", literal(sidecar)))),
		ofDeployments("adds a container after ours", onlyServer(jsonPatch("add", podSpec+"containers/-", literal(sidecar)))),
		ofDeployments("adds a container that starts before ours", jsonPatch(
			"add", podSpec+"initContainers", literal([]any{kinds.NativeSidecar()}))),
		ofDeployments("schedules the pods", jsonPatch(
			"add", podSpec+"nodeSelector", `{"pool": "general"}`,
			"add", podSpec+"priorityClassName", `"system-cluster-critical"`,
			"add", podSpec+"topologySpreadConstraints", "[]",
			"add", podSpec+"affinity", literal(map[string]any{"podAntiAffinity": map[string]any{}}))),
		ofDeployments("changes the message", jsonPatch("replace", server+"args/0", `"-text=other"`)),
		ofDeployments("changes the replicas", jsonPatch("replace", "/spec/replicas", "1")),
		ofServices("sets the application protocol", jsonPatch("add", "/spec/ports/0/appProtocol", `"http"`, "add", "/spec/sessionAffinity", `"ClientIP"`)),
		ofServices("changes the selector", jsonPatch("add", "/spec/selector/app", `"other"`)),
		ofServices("changes the port", jsonPatch("replace", "/spec/ports/0/port", "8080")),
		ofServices("changes the type", jsonPatch("replace", "/spec/type", `"LoadBalancer"`)),
		ofServices("adds a port", `size(object.spec.ports) == 1 ? `+jsonPatch("add", "/spec/ports/-", literal(map[string]any{"name": "metrics", "port": 9090, "protocol": "TCP"}))+" : []"),
	}
	pods := policyCase{name: "Pod: adds a container before ours", resource: corev1.SchemeGroupVersion.WithResource("pods"), create: true,
		patch: "size(object.spec.containers) == 1 ? " + jsonPatch("add", "/spec/containers/0", literal(sidecar)) + " : []"}
	return append(all, pods)
}

func ofDeployments(name, patch string) policyCase {
	return policyCase{name: "Deployment: " + name, resource: deployment.Resource, create: true, update: true, patch: patch}
}

func ofServices(name, patch string) policyCase {
	return policyCase{name: "Service: " + name, resource: service.Resource, create: true, update: true, patch: patch}
}

// policiesThatRemove are policies that remove metadata of the operator.
func policiesThatRemove() (all []policyCase) {
	for _, kind := range children.DifferentObjectKinds() {
		strip := func(what, path, condition string) {
			all = append(all, policyCase{name: kind.Name + ": removes " + what, resource: kind.Resource, create: true, update: true,
				patch: condition + " ? " + jsonPatch("remove", path, "") + " : []"})
		}
		strip("the label of the operator", "/metadata/labels/app.kubernetes.io~1managed-by", `has(object.metadata.labels) && "app.kubernetes.io/managed-by" in object.metadata.labels`)
		strip("all labels", "/metadata/labels", "has(object.metadata.labels)")
		strip("all annotations", "/metadata/annotations", "has(object.metadata.annotations)")
		strip("the owner", "/metadata/ownerReferences", "has(object.metadata.ownerReferences)")
	}
	return all
}

// policiesThatAlternate are policies whose result differs at every write.
func policiesThatAlternate() []policyCase {
	all := []policyCase{
		ofDeployments("counts writes in an annotation", jsonPatch("add", "/metadata/annotations/writes",
			`request.operation == "UPDATE" && has(oldObject.metadata.annotations) && "writes" in oldObject.metadata.annotations ? oldObject.metadata.annotations["writes"] + "i" : "i"`)),
		ofDeployments("changes a label at every write", jsonPatch("add", component,
			flip(`oldObject.metadata.labels["app.kubernetes.io/component"]`, `"a"`, `"b"`))),
		ofDeployments("changes the image at every write", jsonPatch("replace", server+"image",
			flip(oldServer+".image", `"docker.io/library/a:1"`, `"docker.io/library/b:1"`))),
		ofDeployments("changes the message at every write", jsonPatch("replace", server+"args/0",
			flip(oldServer+".args[0]", `"-text=a"`, `"-text=b"`))),
		ofServices("changes a label at every write", jsonPatch("add", component,
			flip(`oldObject.metadata.labels["app.kubernetes.io/component"]`, `"a"`, `"b"`))),
	}
	for i := range all {
		all[i].unstable = true
	}
	return all
}

// policiesThatStop are policies that stop rollouts. The operator reports that after two minutes.
func policiesThatStop() []policyCase {
	return []policyCase{ofDeployments("pauses rollouts", jsonPatch("add", "/spec/paused", "true"))}
}

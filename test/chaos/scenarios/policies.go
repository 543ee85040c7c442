package scenarios

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kkloud-io/echo-operator/internal/children"
	"github.com/kkloud-io/echo-operator/test/chaos/harness"
	"github.com/kkloud-io/echo-operator/test/chaos/kinds"
)

// policyCase is a policy that changes one kind of object of the Echo "one".
type policyCase struct {
	name     string
	resource schema.GroupVersionResource
	// operations are those that it changes. Empty means creations and updates.
	operations []string
	// patch is the CEL expression of a JSON patch.
	patch string
	// unstable is true if the result differs at each write.
	unstable bool
	// adds is true if it adds fields that the operator does not own.
	adds bool
}

// kind returns the first kind of child that has the resource, or an empty kind.
func (c policyCase) kind() children.Kind {
	if i := slices.IndexFunc(children.Kinds, func(kind children.Kind) bool { return kind.Resource == c.resource }); i >= 0 {
		return children.Kinds[i]
	}
	return children.Kind{}
}

func (c policyCase) ofPods() bool { return c.resource.Resource == "pods" }

// policies has an admission policy change what the operator writes, for the first write of an Echo or for
// later ones.
func policies(o harness.Options) (all []harness.Scenario, err error) {
	core := []string{"Deployment: rewrites the image registry", "Deployment: removes the label of the operator", "Service: changes the selector"}
	for _, p := range allPolicies() {
		for _, s := range []stage{stages[0], stages[2]} {
			c := combination{s, []disturbance{mutates(p.name, p)}}
			if !o.Short || s.name != beforeCreation && slices.Contains(core, p.name) {
				all = append(all, harness.Scenario{Name: c.name(), Run: c.run})
			}
		}
	}
	return all, nil
}

func allPolicies() []policyCase {
	return slices.Concat(policiesThatChange(), policiesThatRemove(), policiesThatAlternate())
}

const (
	podSpec   = "/spec/template/spec/"
	server    = podSpec + "containers/0/"
	ours      = "object.spec.template.spec.containers[0]"
	oldServer = "oldObject.spec.template.spec.containers[0]"

	// JSON in the Common Expression Language (CEL), in which the elements of a list or a map must have one
	// type, which dyn hides.
	sidecar = `{"name": dyn("chaos"), "image": dyn("docker.io/library/chaos:1"),` +
		` "ports": dyn([{"name": dyn("http"), "containerPort": dyn(9090), "protocol": dyn("TCP")}]),` +
		` "securityContext": dyn({"allowPrivilegeEscalation": dyn(false), "capabilities": dyn({"drop": ["ALL"]})})}`
	small = `{"cpu": "50m", "memory": "52Mi", "ephemeral-storage": "1Gi"}`
)

// policiesThatChange add, replace and remove scalars, map entries, list items and structs, at creations,
// at updates and at both.
func policiesThatChange() []policyCase {
	at := func(operation string, c policyCase) policyCase {
		c.name, c.operations = c.name+" at "+operation, []string{operation}
		return c
	}
	adds := func(c policyCase) policyCase {
		c.adds = true
		return c
	}
	return []policyCase{
		ofDeployments("rewrites the image registry", jsonPatch(
			"replace", server+"image", ours+`.image.replace("docker.io/", "mirror.example.com/")`)),
		ofDeployments("raises requests and limits", jsonPatch("add", server+"resources", `{"requests": `+small+`, "limits": `+small+`}`)),
		adds(ofDeployments("adds security settings", jsonPatch(
			"add", podSpec+"securityContext/fsGroup", "1000650000",
			"add", podSpec+"securityContext/seLinuxOptions", `{"level": "s0:c26,c5"}`,
			"add", server+"securityContext/runAsUser", "1000650000",
			"add", server+"securityContext/seccompProfile", `{"type": "RuntimeDefault"}`))),
		adds(ofDeployments("adds a container before ours",
			"size(object.spec.template.spec.containers) == 1 ? "+jsonPatch("add", podSpec+"containers/0", sidecar)+" : []")),
		adds(ofDeployments("adds settings of spec.pod", jsonPatch(
			"add", podSpec+"nodeSelector", `{"pool": "general"}`,
			"add", podSpec+"tolerations", `[{"key": "arch", "operator": "Equal", "value": "amd64", "effect": "NoSchedule"}]`,
			"add", podSpec+"priorityClassName", `"system-cluster-critical"`))),
		ofDeployments("changes the message", jsonPatch("replace", server+"args/0", `"-text=other"`)),
		ofDeployments("changes the replicas", jsonPatch("replace", "/spec/replicas", "1")),
		at("CREATE", ofDeployments("changes the image", jsonPatch("replace", server+"image", `"docker.io/library/mirror:1"`))),
		at("CREATE", adds(ofDeployments("adds an annotation", jsonPatch("add", "/spec/template/metadata/annotations", `{"team": "blue"}`)))),
		at("UPDATE", ofDeployments("removes the probe", jsonPatch("remove", server+"livenessProbe", ""))),
		at("UPDATE", ofServices("changes the port", jsonPatch("replace", "/spec/ports/0/port", "8080"))),
		adds(ofServices("sets the application protocol", jsonPatch(
			"add", "/spec/ports/0/appProtocol", `"http"`,
			"add", "/spec/sessionAffinity", `"ClientIP"`))),
		ofServices("changes the selector", jsonPatch("add", "/spec/selector/app", `"other"`)),
		ofServices("changes the type", jsonPatch("replace", "/spec/type", `"LoadBalancer"`)),
		ofServices("adds a port",
			"size(object.spec.ports) == 1 ? "+jsonPatch("add", "/spec/ports/-", `{"name": dyn("metrics"), "port": dyn(9090), "protocol": dyn("TCP")}`)+" : []"),
		ofDeployments("pauses rollouts", jsonPatch("add", "/spec/paused", "true")),
		{name: "Pod: adds a container before ours", resource: corev1.SchemeGroupVersion.WithResource("pods"), operations: []string{"CREATE"},
			patch: "size(object.spec.containers) == 1 ? " + jsonPatch("add", "/spec/containers/0", sidecar) + " : []"},
	}
}

func ofDeployments(name, patch string) policyCase {
	return policyCase{name: "Deployment: " + name, resource: deployment.Resource, patch: patch}
}

func ofServices(name, patch string) policyCase {
	return policyCase{name: "Service: " + name, resource: service.Resource, patch: patch}
}

// policiesThatRemove are policies that remove metadata of the operator.
func policiesThatRemove() (all []policyCase) {
	for _, kind := range kinds.Servers() {
		strip := func(what, path, condition string) {
			patch := condition + " ? " + jsonPatch("remove", path, "") + " : []"
			all = append(all, policyCase{name: kind.Name + ": removes " + what, resource: kind.Resource, patch: patch})
		}
		strip("the label of the operator", "/metadata/labels/app.kubernetes.io~1managed-by",
			`has(object.metadata.labels) && "app.kubernetes.io/managed-by" in object.metadata.labels`)
		strip("the owner", "/metadata/ownerReferences", "has(object.metadata.ownerReferences)")
	}
	return all
}

// policiesThatAlternate are policies whose result differs at every write.
func policiesThatAlternate() []policyCase {
	flip := func(stored, a, b string) string {
		return fmt.Sprintf(`request.operation == "UPDATE" && %s == %s ? %s : %s`, stored, a, b, a)
	}
	const component = "/metadata/labels/app.kubernetes.io~1component"
	all := []policyCase{
		ofDeployments("changes the image at every write", jsonPatch("replace", server+"image",
			flip(oldServer+".image", `"docker.io/library/a:1"`, `"docker.io/library/b:1"`))),
		ofDeployments("changes the message at every write", jsonPatch("replace", server+"args/0", flip(oldServer+".args[0]", `"-text=a"`, `"-text=b"`))),
		ofServices("changes a label at every write", jsonPatch("add", component,
			flip(`oldObject.metadata.labels["app.kubernetes.io/component"]`, `"a"`, `"b"`))),
	}
	for i := range all {
		all[i].unstable = true
	}
	return all
}

// jsonPatch returns the CEL expression of a JSON patch. Its arguments are an operation, a path and the
// CEL expression of a value, for each operation.
func jsonPatch(operations ...string) string {
	var all []string
	for o := range slices.Chunk(operations, 3) {
		value := ""
		if o[2] != "" {
			value = ", value: " + o[2]
		}
		all = append(all, fmt.Sprintf("JSONPatch{op: %q, path: %q%s}", o[0], o[1], value))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

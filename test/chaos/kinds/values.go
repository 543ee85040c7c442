package kinds

import "strings"

// values are valid values of fields, by the end of their path. Without one, a change uses any value
// of the field's type: the API server may reject it, as it may reject what a policy writes.
var values = map[string]any{
	"imagePullPolicy":            "Always",
	"protocol":                   "UDP",
	"restartPolicy":              "OnFailure",
	"dnsPolicy":                  "Default",
	"preemptionPolicy":           "Never",
	"effect":                     "PreferNoSchedule",
	"priorityClassName":          "system-cluster-critical",
	"terminationMessagePolicy":   "File",
	"scheme":                     "HTTPS",
	"whenUnsatisfiable":          "DoNotSchedule",
	"nodeTaintsPolicy":           "Honor",
	"nodeAffinityPolicy":         "Ignore",
	"seccompProfile.type":        "Localhost",
	"appArmorProfile.type":       "RuntimeDefault",
	"strategy.type":              "Recreate",
	"spec.type":                  "NodePort",
	"fsGroupChangePolicy":        "OnRootMismatch",
	"supplementalGroupsPolicy":   "Merge",
	"supplementalGroups":         []any{int64(7)},
	"procMount":                  "Default",
	"medium":                     "Memory",
	"os":                         map[string]any{"name": "linux"},
	"appProtocol":                "http",
	"sessionAffinity":            "ClientIP",
	"ipFamilyPolicy":             "PreferDualStack",
	"internalTrafficPolicy":      "Local",
	"externalTrafficPolicy":      "Local",
	"trafficDistribution":        "PreferClose",
	"externalIPs":                []any{"192.0.2.1"},
	"clusterIP":                  "None",
	"loadBalancerIP":             "192.0.2.1",
	"loadBalancerSourceRanges":   []any{"192.0.2.0/24"},
	"unhealthyPodEvictionPolicy": "IfHealthyBudget",
	"uid":                        "11111111-2222-3333-4444-555555555555",
	"minReadySeconds":            int64(2), // A longer time would only delay the scenario.
}

// items are valid items of lists, by the end of the list's path.
var items = map[string]any{
	"containers":                Sidecar(),
	"initContainers":            NativeSidecar(),
	"tolerations":               map[string]any{"key": "chaos", "operator": "Exists"},
	"imagePullSecrets":          map[string]any{"name": "chaos"},
	"hostAliases":               map[string]any{"ip": "192.0.2.1", "hostnames": []any{"chaos"}},
	"env":                       map[string]any{"name": "CHAOS", "value": "chaos"},
	"envFrom":                   map[string]any{"configMapRef": map[string]any{"name": "chaos", "optional": true}},
	"containers[0].ports":       map[string]any{"name": "metrics", "containerPort": int64(9090), "protocol": "TCP"},
	"spec.ports":                map[string]any{"name": "metrics", "port": int64(9090), "protocol": "TCP"},
	"volumeMounts":              map[string]any{"name": "tmp", "mountPath": "/chaos"},
	"volumes":                   map[string]any{"name": "chaos", "emptyDir": map[string]any{}},
	"sysctls":                   map[string]any{"name": "kernel.shm_rmid_forced", "value": "1"},
	"readinessGates":            map[string]any{"conditionType": "example.com/chaos"},
	"matchExpressions":          map[string]any{"key": "chaos", "operator": "DoesNotExist"},
	"topologySpreadConstraints": map[string]any{"maxSkew": int64(2), "topologyKey": "chaos", "whenUnsatisfiable": "ScheduleAnyway"},
	"ownerReferences":           map[string]any{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "11111111-2222-3333-4444-555555555555"},
	"finalizers":                "kkloud.io/chaos",
	"ipFamilies":                "IPv6",
	"externalIPs":               "192.0.2.1",
	"resizePolicy":              map[string]any{"resourceName": "cpu", "restartPolicy": "NotRequired"},
}

// Sidecar returns a container, as JSON represents it, that the restricted Pod Security Standard
// allows. It has a port of the name http.
func Sidecar() map[string]any {
	return map[string]any{
		"name": "chaos", "image": "docker.io/library/chaos:1",
		"ports": []any{map[string]any{"name": "http", "containerPort": int64(9090), "protocol": "TCP"}},
		"securityContext": map[string]any{
			"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []any{"ALL"}},
		},
	}
}

// NativeSidecar returns a Sidecar for the list of init containers.
func NativeSidecar() map[string]any {
	c := Sidecar()
	c["restartPolicy"] = "Always"
	return c
}

// knownValue returns a valid value of the field: for an item of a list the path is that of the list.
func knownValue(path Field, isList bool) (any, bool) {
	text := path.String()
	if value, known := longest(values, text); known {
		return value, true
	}
	item, known := longest(items, text)
	if known && isList {
		return []any{item}, true
	}
	return item, known
}

// longest returns the value for the longest end of the path.
func longest(table map[string]any, path string) (value any, known bool) {
	length := 0
	for end, v := range table {
		if len(end) > length && (path == end || strings.HasSuffix(path, "."+end)) {
			value, known, length = v, true, len(end)
		}
	}
	return value, known
}

// newKey returns a key for a new entry of a map.
func newKey(path Field) string {
	switch text := path.String(); {
	case strings.HasSuffix(text, "resources.limits"), strings.HasSuffix(text, "resources.requests"):
		return "ephemeral-storage"
	default:
		return "example.com/chaos"
	}
}

// another returns a value that differs from the current one.
func another(value any, path Field) any {
	if known, found := longest(values, path.String()); found && known != value {
		return known
	}
	switch v := value.(type) {
	case bool:
		return !v
	case float64:
		return int64(v) + 1
	case string:
		switch {
		case strings.HasSuffix(v, "Mi"):
			return "123Mi"
		case strings.Contains(path.String(), "[cpu]"):
			return "77m"
		case path[len(path)-1].Name == "kind":
			return "Other"
		default:
			return v + "x"
		}
	default:
		return nil
	}
}

package kinds

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

//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
)

// links creates the bridge of the pods before the CNI plugin does, because the address of
// the bridge is the address of the node. Without a default route, no process in the
// sandbox can reach or resolve an address outside it. The bridge has a fixed MAC address:
// otherwise it adopts the lowest one of its ports, which changes when pods start and stop,
// and packets of other pods are lost for some seconds after each change.
const links = `link set lo up
link add cni0 address 0a:58:0a:f4:00:01 type bridge
address add ` + node.IP + `/24 dev cni0
link set cni0 up
route add 10.96.0.0/16 dev cni0
`

// networkSettings belong to the network namespace of the sandbox, not to the host.
var networkSettings = map[string]string{
	"/proc/sys/net/ipv4/ip_forward": "1",
	// Without this setting, replies between two pods on the bridge bypass kube-proxy's
	// rules, and pods cannot reach Services whose endpoints are on the same bridge.
	"/proc/sys/net/bridge/bridge-nf-call-iptables": "1",
}

func configureNetwork() error {
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(links)
	if output, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("create the bridge: %w: %s", err, strings.TrimSpace(string(output)))
	}
	for path, value := range networkSettings {
		if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set %s: %w", path, err)
		}
	}
	return nil
}

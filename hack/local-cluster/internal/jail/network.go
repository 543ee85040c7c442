//go:build linux

package jail

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/kkloud-io/echo-operator/hack/local-cluster/internal/node"
)

// links makes the pods' bridge ahead of the CNI plug-in, because its address is
// the node's. There is no default route: nothing in the jail can reach, or even
// look up, anything outside of it. A bridge without an address of its own takes the lowest of
// its pods', which come and go: for seconds after that, requests of others get lost.
const links = `link set lo up
link add cni0 address 0a:58:0a:f4:00:01 type bridge
address add ` + node.IP + `/24 dev cni0
link set cni0 up
route add 10.96.0.0/16 dev cni0
`

// networkSettings belong to the jail's network namespace, not to the host.
var networkSettings = map[string]string{
	"/proc/sys/net/ipv4/ip_forward": "1",
	// Without it an answer between two pods of the bridge would bypass
	// kube-proxy's rules, and a Service would work from elsewhere only.
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

// Command coredns is CoreDNS with only the plugins that cluster DNS needs. A full build
// links the SDKs of three cloud providers and takes ten times as long.
//
// CoreDNS fixes the order of its plugins at compile time. The order of these imports and
// of the plugins in a Corefile has no effect.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	coremain.Run()
}

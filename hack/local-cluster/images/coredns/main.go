// Command coredns is CoreDNS with the plugins that cluster DNS needs and no
// others: a full build links the SDKs of three clouds and takes ten times as
// long.
//
// The order in which plugins handle a query is CoreDNS's own, fixed at compile
// time, whatever the order of these imports or of a Corefile.
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

// Package node describes the only node of the cluster: the programs that it runs, their
// arguments, configuration and certificates. All its paths are paths inside the sandbox,
// and so are constants.
package node

import "embed"

// Rootfs contains the configuration files of the components in the directory rootfs, under their
// well-known paths.
//
//go:embed all:rootfs
var Rootfs embed.FS

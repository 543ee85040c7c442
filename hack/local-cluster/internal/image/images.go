package image

import (
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is an image that replaces a published one of the same name.
type Image struct {
	// Name may contain variables of the package version.
	Name   string
	Files  []File
	Config v1.Config
}

// clusterImages lists the images that every cluster needs. The programs come from the bin directory or from Debian packages.
func clusterImages(binDir string) ([]Image, error) {
	bin := func(name string) string { return filepath.Join(binDir, name) }
	shell := program("/bin/sh", busybox)

	applets, err := busyboxApplets()
	if err != nil {
		return nil, err
	}
	return []Image{
		{
			Name:   "registry.k8s.io/pause:3.10.1",
			Files:  []File{program("/pause", bin("pause"))},
			Config: v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"},
		},
		{
			Name:   "docker.io/coredns/coredns:v${COREDNS_VERSION}",
			Files:  []File{program("/coredns", bin("coredns"))},
			Config: v1.Config{Entrypoint: []string{"/coredns"}, User: "65532:65532", WorkingDir: "/"},
		},
		{
			Name: "quay.io/operator-framework/olm:v${OLM_VERSION}",
			Files: []File{
				program("/bin/olm", bin("olm")),
				program("/bin/catalog", bin("catalog")),
				program("/bin/package-server", bin("package-server")),
				program("/bin/copy-content", bin("copy-content")),
				program("/bin/cpb", bin("cpb")),
				// Jobs that unpack a bundle copy cpb to a volume that they share with it.
				program("/bin/cp", busybox),
			},
			Config: v1.Config{Entrypoint: []string{"/bin/olm"}, Env: []string{"PATH=/bin"}, User: "1001"},
		},
		{
			Name: "quay.io/operator-framework/opm:v${OPM_VERSION}",
			Files: []File{
				program("/bin/opm", bin("opm")),
				program("/bin/grpc_health_probe", bin("grpc-health-probe")),
				shell,
				text("/etc/nsswitch.conf", "hosts: files dns\n"),
				tmp(),
			},
			Config: v1.Config{Entrypoint: []string{"/bin/opm"}, Env: []string{"PATH=/bin"}, User: "1001"},
		},
		{
			Name:   "quay.io/operator-framework/scorecard-untar:v1.42.2",
			Files:  append(slices.Clone(applets), tmp()),
			Config: v1.Config{Env: []string{"PATH=/bin"}, User: "1001"},
		},
		{
			Name:   "docker.io/library/busybox:1.37",
			Files:  append(slices.Clone(applets), text("/etc/passwd", passwd), text("/etc/group", group), tmp()),
			Config: v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}},
		},
	}, nil
}

// Samples lists the images of the servers in config/samples and in the tests, which are optional.
func Samples(binDir string) ([]Image, error) {
	bin := func(name string) string { return filepath.Join(binDir, name) }
	nginx, err := withLibraries(program("/usr/sbin/nginx", bin("nginx")))
	if err != nil {
		return nil, err
	}
	return []Image{
		{
			Name:  "docker.io/hashicorp/http-echo:${HTTP_ECHO_VERSION}",
			Files: []File{program("/http-echo", bin("http-echo"))},
			Config: v1.Config{
				Entrypoint:   []string{"/http-echo"},
				Env:          []string{"PATH=/", "ECHO_TEXT=hello-world"},
				ExposedPorts: map[string]struct{}{"5678/tcp": {}},
				User:         "65532",
			},
		},
		{
			Name:   "quay.io/operator-framework/scorecard-test:v1.42.2",
			Files:  []File{program("/usr/local/bin/scorecard-test", bin("scorecard-test"))},
			Config: v1.Config{Entrypoint: []string{"/usr/local/bin/scorecard-test"}, Env: []string{"PATH=/usr/local/bin"}, User: "1001"},
		},
		{
			Name:  "ghcr.io/mccutchen/go-httpbin:${GO_HTTPBIN_VERSION}",
			Files: []File{program("/usr/bin/go-httpbin", bin("go-httpbin"))},
			Config: v1.Config{
				Entrypoint:   []string{"/usr/bin/go-httpbin"},
				ExposedPorts: map[string]struct{}{"8080/tcp": {}},
				User:         "65532",
			},
		},
		{
			Name: "docker.io/nginxinc/nginx-unprivileged:1.28",
			Files: append(nginx,
				program("/bin/sh", busybox),
				script("/docker-entrypoint.sh", "#!/bin/sh\nexec \"$@\"\n"),
				text("/etc/nginx/nginx.conf", nginxConf),
				text("/usr/share/nginx/html/index.html", nginxPage),
				text("/etc/passwd", passwd),
				text("/etc/group", group),
				tmp(),
			),
			Config: v1.Config{
				Entrypoint:   []string{"/docker-entrypoint.sh"},
				Cmd:          []string{"nginx", "-g", "daemon off;"},
				Env:          []string{"PATH=/usr/sbin:/bin"},
				ExposedPorts: map[string]struct{}{"8080/tcp": {}},
				StopSignal:   "SIGQUIT",
				User:         "101",
			},
		},
	}, nil
}

// OLMV1 lists the images of OLM v1, which is optional.
func OLMV1(binDir string) ([]Image, error) {
	of := func(name string) Image {
		return Image{
			Name:   "quay.io/operator-framework/" + name + ":v${OLM_V1_VERSION}",
			Files:  []File{program("/"+name, filepath.Join(binDir, name)), tmp()},
			Config: v1.Config{Entrypoint: []string{"/" + name}, User: "65532:65532", WorkingDir: "/"},
		}
	}
	return []Image{of("catalogd"), of("operator-controller")}, nil
}

// Gateway lists the images of the Gateway, which is optional.
func Gateway(binDir string) ([]Image, error) {
	return []Image{{
		Name:   "docker.io/library/traefik:v${TRAEFIK_VERSION}",
		Files:  []File{program("/traefik", filepath.Join(binDir, "traefik"))},
		Config: v1.Config{Entrypoint: []string{"/traefik"}, User: "65532:65532", WorkingDir: "/"},
	}}, nil
}

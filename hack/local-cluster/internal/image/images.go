package image

import (
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Image is an image that replaces a published one of the same name.
type Image struct {
	// Name may contain variables of the package version.
	Name   string
	Files  []File
	Config v1.Config
}

// Cluster lists the images that every cluster needs. The programs come from the bin directory or from Debian packages.
func Cluster(binDir string) ([]Image, error) {
	bin := func(name string) string { return filepath.Join(binDir, name) }
	applets, err := busyboxApplets()
	if err != nil {
		return nil, err
	}
	applets = append(applets, tmp())
	return []Image{
		programImage("registry.k8s.io/pause:3.10.1", bin("pause"), "65535:65535"),
		programImage("docker.io/coredns/coredns:v${COREDNS_VERSION}", bin("coredns"), "65532:65532"),
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
				program("/bin/sh", busybox),
				text("/etc/nsswitch.conf", "hosts: files dns\n"),
				tmp(),
			},
			Config: v1.Config{Entrypoint: []string{"/bin/opm"}, Env: []string{"PATH=/bin"}, User: "1001"},
		},
		{
			Name:   "quay.io/operator-framework/scorecard-untar:v1.42.2",
			Files:  applets,
			Config: v1.Config{Env: []string{"PATH=/bin"}, User: "1001"},
		},
		{
			Name:   "docker.io/library/busybox:1.37",
			Files:  applets,
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
		programImage("docker.io/hashicorp/http-echo:${HTTP_ECHO_VERSION}", bin("http-echo"), "65532", "ECHO_TEXT=hello-world"),
		programImage("quay.io/operator-framework/scorecard-test:v1.42.2", bin("scorecard-test"), "1001"),
		programImage("ghcr.io/mccutchen/go-httpbin:${GO_HTTPBIN_VERSION}", bin("go-httpbin"), "65532"),
		{
			Name: "docker.io/nginxinc/nginx-unprivileged:1.28",
			Files: append(nginx,
				program("/bin/sh", busybox),
				script("/docker-entrypoint.sh", "#!/bin/sh\nexec \"$@\"\n"),
				text("/etc/nginx/nginx.conf", nginxConf),
				text("/usr/share/nginx/html/index.html", nginxPage),
				tmp(),
			),
			Config: v1.Config{
				Entrypoint: []string{"/docker-entrypoint.sh"},
				Cmd:        []string{"nginx", "-g", "daemon off;"},
				Env:        []string{"PATH=/usr/sbin:/bin"},
				StopSignal: "SIGQUIT",
				User:       "101",
			},
		},
	}, nil
}

// OLMV1 lists the images of OLM v1, which is optional.
func OLMV1(binDir string) ([]Image, error) {
	var images []Image
	for _, name := range []string{"catalogd", "operator-controller"} {
		images = append(images, programImage("quay.io/operator-framework/"+name+":v${OLM_V1_VERSION}",
			filepath.Join(binDir, name), "65532:65532"))
	}
	return images, nil
}

// Gateway lists the images of the Gateway, which is optional.
func Gateway(binDir string) ([]Image, error) {
	return []Image{
		programImage("docker.io/library/traefik:v${TRAEFIK_VERSION}", filepath.Join(binDir, "traefik"), "65532:65532"),
	}, nil
}

// programImage returns an image with one program in its root directory, which is the entrypoint.
func programImage(name, source, user string, env ...string) Image {
	path := "/" + filepath.Base(source)
	return Image{
		Name:   name,
		Files:  []File{program(path, source), tmp()},
		Config: v1.Config{Entrypoint: []string{path}, Env: append(env, "PATH=/"), User: user},
	}
}

package image

import (
	"fmt"
	"os/exec"
	"path"
	"strings"
)

// busybox is Debian's statically linked busybox, which provides the shell and the applets
// of the images.
const busybox = "/bin/busybox"

// nginxConf configures nginx like the published unprivileged image: it listens on port
// 8080 and writes only to /tmp. It serves only the page below.
const nginxConf = `worker_processes auto;
pid /tmp/nginx.pid;
error_log /dev/stderr notice;

events {
    worker_connections 1024;
}

http {
    client_body_temp_path /tmp/client_temp;
    proxy_temp_path /tmp/proxy_temp;
    fastcgi_temp_path /tmp/fastcgi_temp;
    uwsgi_temp_path /tmp/uwsgi_temp;
    scgi_temp_path /tmp/scgi_temp;

    default_type text/html;
    access_log /dev/stdout;

    server {
        listen 8080;
        root /usr/share/nginx/html;
        index index.html;
    }
}
`

const nginxPage = `<!DOCTYPE html>
<html>
<head><title>Welcome to nginx!</title></head>
<body><h1>Welcome to nginx!</h1></body>
</html>
`

// busyboxApplets returns the program and a link to it for each applet.
func busyboxApplets() ([]File, error) {
	output, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the applets of %s: %w", busybox, err)
	}
	files := []File{program("/bin/busybox", busybox)}
	for applet := range strings.FieldsSeq(string(output)) {
		if applet != "busybox" {
			files = append(files, link(path.Join("/bin", applet), "busybox"))
		}
	}
	return files, nil
}

// withLibraries adds the shared libraries that a program loads, at the paths that ldd
// reports on the host.
func withLibraries(file File) ([]File, error) {
	output, err := exec.Command("ldd", file.Source).Output()
	if err != nil {
		return nil, fmt.Errorf("list the libraries of %s: %w", file.Source, err)
	}
	files := []File{file}
	for line := range strings.Lines(string(output)) {
		// "name => /path (address)", or "/path (address)" for the loader itself.
		for field := range strings.FieldsSeq(line) {
			if path.IsAbs(field) {
				files = append(files, program(field, field))
			}
		}
		if strings.Contains(line, "not found") {
			return nil, fmt.Errorf("library of %s is missing: %s", file.Source, strings.TrimSpace(line))
		}
	}
	return files, nil
}

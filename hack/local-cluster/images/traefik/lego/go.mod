// Lego without the providers of DNS records, and so without the modules that these require.
// make copies the other packages that Traefik uses from the module.
module github.com/go-acme/lego/v5

go 1.26.0

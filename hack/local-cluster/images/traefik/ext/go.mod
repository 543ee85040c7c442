// Traefik requires this module, but no version of it is published.
module github.com/traefik/traefik/dynamic/ext

go 1.26.0

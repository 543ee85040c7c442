// Package ext contains the fields that a build of Traefik can add to its configuration: none here.
package ext

// HTTP has no additional fields.
type HTTP struct{}

// Router has no additional fields.
type Router struct{}

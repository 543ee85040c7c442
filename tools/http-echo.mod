module github.com/kkloud-io/echo-operator/tools

go 1.26.0

tool (
	github.com/hashicorp/http-echo
)

require (
	github.com/hashicorp/http-echo v1.0.0
)

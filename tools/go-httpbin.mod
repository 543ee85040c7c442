module github.com/kkloud-io/echo-operator/tools

go 1.26.0

tool (
	github.com/mccutchen/go-httpbin/v2/cmd/go-httpbin
)

require (
	github.com/mccutchen/go-httpbin/v2 v2.26.0
)

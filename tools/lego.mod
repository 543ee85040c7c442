module github.com/kkloud-io/echo-operator/tools

go 1.26.3

require github.com/go-acme/lego/v5 v5.4.1

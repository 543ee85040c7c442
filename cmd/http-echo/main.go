// http-echo responds to every HTTP request with the same text. It has the flags of HashiCorp's http-echo 1.0.0.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/automaxprocs/maxprocs"

	"github.com/kkloud-io/echo-operator/internal/server"
)

// version changes with the server, not with the operator, so that its image stays the same from release to release.
const version = "http-echo of echo-operator, 1.0.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "http-echo:", err)
		os.Exit(1)
	}
}

type settings struct {
	response       server.Response
	listen, health string
	version        bool
}

func parse(args []string) (s settings, err error) {
	var text string
	flags := flag.NewFlagSet("http-echo", flag.ContinueOnError)
	flags.StringVar(&text, "text", "", "`text` of the response; a newline follows it. If it is empty, the environment variable ECHO_TEXT sets it")
	flags.StringVar(&s.listen, "listen", ":5678", "`address` and port of the server")
	flags.IntVar(&s.response.Status, "status-code", http.StatusOK, "status `code` of the response, 200 to 599")
	flags.Func("header", "`field` of the response's header, such as 'Location: https://example.com/'; repeat it for more", s.response.AddHeader)
	flags.StringVar(&s.health, "health-listen", "", "`address` and port that respond with 200 to health checks, and with metrics on /metrics")
	flags.BoolVar(&s.version, "version", false, "print the version")
	if err := flags.Parse(args); err != nil || s.version {
		return s, err
	}
	text = cmp.Or(text, os.Getenv("ECHO_TEXT"))
	s.response.Body = []byte(text + "\n")
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q: http-echo takes flags only", flags.Arg(0))
	case text == "":
		return s, errors.New("the text is empty: set -text or ECHO_TEXT")
	case s.response.Status < 200 || s.response.Status > 599:
		return s, fmt.Errorf("-status-code is %d, want 200 to 599", s.response.Status)
	}
	return s, nil
}

// run serves until the context is done and clients have gone to other servers.
func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	if s.version {
		_, err := fmt.Fprintln(out, version)
		return err
	}
	// A fraction of a CPU is best used by one thread: Go starts two.
	if _, err := maxprocs.Set(); err != nil {
		return fmt.Errorf("set GOMAXPROCS: %w", err)
	}
	listener, err := server.Listen(ctx, s.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	echo := server.New(s.response, server.LimitMemory(s.response))
	if s.health != "" {
		health, err := server.Listen(ctx, s.health)
		if err != nil {
			return fmt.Errorf("-health-listen: %w", err)
		}
		go echo.Health().Serve(context.WithoutCancel(ctx), health)
	}
	fmt.Fprintf(out, "http-echo listens on %s\n", listener.Addr())
	echo.Serve(ctx, listener)
	return nil
}

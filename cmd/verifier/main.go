// The verifier requests the response of one Echo on one layer until it receives SIGTERM. The kubelet
// reads the result from its readiness probe.
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	// The image has no certificates: these are Mozilla's.
	_ "golang.org/x/crypto/x509roots/fallback"
	"golang.org/x/net/http/httpguts"

	"github.com/kkloud-io/echo-operator/internal/listener"
	"github.com/kkloud-io/echo-operator/internal/verifier"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "verifier:", err)
		os.Exit(1)
	}
}

type settings struct {
	target    verifier.Target
	period    time.Duration
	threshold int
	listen    string
}

func parse(args []string) (s settings, err error) {
	var layer, address, ips, digest string
	var headers []string
	flags := flag.NewFlagSet("verifier", flag.ContinueOnError)
	flags.StringVar(&layer, "layer", "", "`layer` to verify: dns, service or route")
	flags.StringVar(&address, "url", "", "`URL` of the response")
	flags.StringVar(&ips, "cluster-ips", "", "cluster IPs of the Service, separated by commas; for the layers dns and service")
	flags.IntVar(&s.target.Status, "status", 200, "expected `status` of the response, or 0 for 200 to 299 with any body")
	flags.Int64Var(&s.target.Length, "length", 0, "expected `number` of bytes of the body")
	flags.StringVar(&digest, "sha256", "", "expected SHA-256 `digest` of the body, in hexadecimal")
	flags.Func("header", "declared `field` of the response's header, such as 'Retry-After: 60'; repeat it for more", func(field string) error {
		headers = append(headers, field)
		return nil // The error of the package flag would contain the value.
	})
	flags.DurationVar(&s.period, "period", 10*time.Second, "`time` from the end of a round to the next one")
	flags.DurationVar(&s.target.Timeout, "timeout", 2*time.Second, "deadline of a round, from the look-up of the name to the end of the body")
	flags.IntVar(&s.threshold, "failure-threshold", 3, "`number` of consecutive failed rounds that fails the verification")
	flags.StringVar(&s.listen, "listen", ":8081", "`address` of the probes and the metrics")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if flags.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q: the verifier takes flags only", flags.Arg(0))
	}
	if s.target.Layer = verifier.Layer(layer); !slices.Contains(verifier.Layers, s.target.Layer) {
		return s, fmt.Errorf("-layer is %q, want dns, service or route", layer)
	}
	if s.target.URL, err = url.Parse(address); err != nil || s.target.URL.Hostname() == "" || !slices.Contains([]string{"http", "https"}, s.target.URL.Scheme) {
		return s, fmt.Errorf("-url is %q, want an http or https URL with a host", address)
	}
	if s.target.Header, err = header(headers); err != nil {
		return s, err
	}
	if s.target.Addresses, err = addresses(ips); err != nil {
		return s, err
	}
	if s.target.Layer != verifier.Route && len(s.target.Addresses) == 0 {
		return s, fmt.Errorf("-cluster-ips is empty, but the layer %s needs them", layer)
	}
	if s.period <= 0 || s.target.Timeout <= 0 || s.threshold <= 0 || s.target.Length < 0 {
		return s, errors.New("-period, -timeout and -failure-threshold have to be positive, and -length not negative")
	}
	if s.target.Status != 0 && s.target.Layer != verifier.DNS {
		if n, err := hex.Decode(s.target.SHA256[:], []byte(digest)); err != nil || n != len(s.target.SHA256) {
			return s, fmt.Errorf("-sha256 is %q, want 64 hexadecimal digits", digest)
		}
	}
	return s, nil
}

// header returns the values of headers by their names. An error does not contain a value, which may be confidential.
func header(fields []string) (map[string]string, error) {
	values := map[string]string{}
	for i, field := range fields {
		name, value, found := strings.Cut(field, ": ")
		if !found || !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("-header number %d has no name and value, want 'Name: value'", i+1)
		}
		key := http.CanonicalHeaderKey(name)
		if _, repeated := values[key]; repeated {
			return nil, fmt.Errorf("-header %s is repeated", name)
		}
		values[key] = value
	}
	return values, nil
}

func addresses(list string) (all []netip.Addr, err error) {
	if list == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(list, ",") {
		address, err := netip.ParseAddr(item)
		if err != nil {
			return nil, fmt.Errorf("-cluster-ips has %q, want an IP address", item)
		}
		all = append(all, address)
	}
	return all, nil
}

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	runner := verifier.NewRunner(&s.target, s.period, s.threshold, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	connections, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: runner.Handler(), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go runner.Run(ctx)
	if err := server.Serve(listener.Newest(connections)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// The verifier requests the response of one Echo on one layer until it receives SIGTERM. The kubelet
// reads the result from its readiness probe.
package main

import (
	"context"
	"crypto/sha256"
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

	"github.com/kkloud-io/echo-operator/internal/listener"
	"github.com/kkloud-io/echo-operator/internal/verifier"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
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

// parse parses the flags. The operator writes them, from fields that the API server has validated.
func parse(args []string) (s settings, err error) {
	s.target.Header = map[string]string{}
	flags := flag.NewFlagSet("verifier", flag.ContinueOnError)
	flags.Func("layer", "`layer` to verify: dns, service or route", func(name string) error {
		if s.target.Layer = verifier.Layer(name); !slices.Contains(verifier.Layers, s.target.Layer) {
			return errors.New("want dns, service or route")
		}
		return nil
	})
	flags.Func("url", "`URL` of the response", func(address string) (err error) {
		s.target.URL, err = url.Parse(address)
		return err
	})
	flags.Func("cluster-ips", "cluster IPs of the Service, separated by commas; for the layers dns and service", func(list string) error {
		for item := range strings.SplitSeq(list, ",") {
			address, err := netip.ParseAddr(item)
			if err != nil {
				return err
			}
			s.target.Addresses = append(s.target.Addresses, address)
		}
		return nil
	})
	flags.IntVar(&s.target.Status, "status", 200, "expected `status` of the response, or 0 for 200 to 299 with any body")
	flags.Int64Var(&s.target.Length, "length", 0, "expected `number` of bytes of the body")
	flags.Func("sha256", "expected SHA-256 `digest` of the body, in hexadecimal", func(text string) error {
		digest, err := hex.DecodeString(text)
		if copy(s.target.SHA256[:], digest); len(digest) != sha256.Size {
			return errors.New("want 64 hexadecimal digits")
		}
		return err
	})
	flags.Func("header", "declared `field` of the response's header, such as 'Retry-After: 60'; repeat it for more", func(field string) error {
		name, value, _ := strings.Cut(field, ": ")
		s.target.Header[http.CanonicalHeaderKey(name)] = value
		return nil // The error of the package flag would contain the value, which may be confidential.
	})
	flags.DurationVar(&s.period, "period", 10*time.Second, "`time` from the end of a round to the next one")
	flags.DurationVar(&s.target.Timeout, "timeout", 2*time.Second, "deadline of a round, from the look-up of the name to the end of the body")
	flags.IntVar(&s.threshold, "failure-threshold", 3, "`number` of consecutive failed rounds that fails the verification")
	flags.StringVar(&s.listen, "listen", ":8081", "`address` of the probes and the metrics")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	hasTarget := s.target.URL != nil && (s.target.Layer == verifier.Route || s.target.Layer != "" && len(s.target.Addresses) > 0)
	if flags.NArg() > 0 || !hasTarget {
		return s, errors.New("want the flags -layer, -url and, unless the layer is route, -cluster-ips")
	}
	return s, nil
}

func run(ctx context.Context, args []string) error {
	s, err := parse(args)
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

// Package verifier requests the response of an Echo as a client does, and compares it with the
// declared one. The server may be hostile: a round has one deadline, reads no more bytes than the
// response should have, and no byte of a response is kept or logged.
package verifier

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

// Layer is a part of the way from a client to the server. One container verifies one layer.
type Layer string

// The layers.
const (
	// DNS: the name of the Service resolves to its cluster IPs.
	DNS Layer = "dns"
	// Service: each cluster IP gives the right response.
	Service Layer = "service"
	// Route: the external URL gives the right response.
	Route Layer = "route"
)

// Layers lists all layers.
var Layers = []Layer{DNS, Service, Route}

// Result is the result of one round: a value of the label "result" of the metrics.
type Result string

// The results.
const (
	OK            Result = "ok"
	WrongStatus   Result = "wrong_status"
	WrongHeader   Result = "wrong_header"
	WrongBody     Result = "wrong_body"
	WrongAddress  Result = "wrong_address"
	ResolveFailed Result = "resolve_failed"
	ConnectFailed Result = "connect_failed"
	TLSFailed     Result = "tls_failed"
	Timeout       Result = "timeout"
	Invalid       Result = "invalid_response"
)

// Results lists all results.
var Results = []Result{OK, WrongStatus, WrongHeader, WrongBody, WrongAddress, ResolveFailed, ConnectFailed, TLSFailed, Timeout, Invalid}

// IsWrong reports whether a server sent another response than the declared one.
func (r Result) IsWrong() bool { return r == WrongStatus || r == WrongHeader || r == WrongBody }

// Target is what a round requests, and the response that it expects.
type Target struct {
	Layer Layer
	// URL is the address of the response. The layer dns resolves its host.
	URL *url.URL
	// Addresses are the cluster IPs of the Service, for the layers dns and service.
	Addresses []netip.Addr
	// Status is the expected status, or 0 for any status of 200 to 299 with any body.
	Status int
	// Length is the expected number of bytes of the body, and SHA256 their digest.
	Length int64
	SHA256 [sha256.Size]byte
	// Header has the expected value of each declared header. The response may have further headers, for example
	// of a Gateway.
	Header map[string]string
	// Timeout is the deadline of a round.
	Timeout time.Duration
}

// maxHeaderBytes is the limit of the header of a response. The declared headers have up to 17 KiB, and a Gateway
// adds others.
const maxHeaderBytes = 32 << 10

// Round verifies the target once.
func (t *Target) Round(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	switch t.Layer {
	case DNS:
		return t.resolve(ctx)
	case Service:
		for _, address := range t.Addresses {
			if r := t.request(ctx, address.String()); r != OK {
				return r
			}
		}
		return OK
	case Route:
	}
	return t.request(ctx, t.URL.Hostname())
}

// resolve compares the addresses of the host with the expected ones.
func (t *Target) resolve(ctx context.Context) Result {
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", t.URL.Hostname())
	if err != nil {
		return failure(err)
	}
	for i := range addresses {
		addresses[i] = addresses[i].Unmap()
	}
	for _, pair := range [][2][]netip.Addr{{addresses, t.Addresses}, {t.Addresses, addresses}} {
		for _, address := range pair[0] {
			if !slices.Contains(pair[1], address) {
				return WrongAddress
			}
		}
	}
	return OK
}

// request requests the URL from the host, on a connection of its own.
func (t *Target) request(ctx context.Context, host string) Result {
	transport := &http.Transport{
		Proxy: nil, // OLM sets the proxy variables in the pods of operators. A client in the cluster uses none.
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(address) // The transport adds the port of the scheme.
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(host, port))
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
		ReadBufferSize:         4 << 10,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL.String(), nil)
	if err != nil {
		return Invalid
	}
	request.Header.Set("User-Agent", "echo-operator-verifier")
	// An http.Client rejects a redirect to a URL that it cannot parse. The transport follows no redirect.
	response, err := transport.RoundTrip(request)
	if err != nil {
		return failure(err)
	}
	defer response.Body.Close() // Nothing is lost: the connection is not used again.
	return t.compare(response)
}

// compare compares the status, the body and the declared headers with the expected ones.
func (t *Target) compare(response *http.Response) Result {
	if t.Status == 0 {
		if response.StatusCode < 200 || response.StatusCode > 299 {
			return WrongStatus
		}
		return OK
	}
	if response.StatusCode != t.Status {
		return WrongStatus
	}
	digest := sha256.New()
	length, err := io.Copy(digest, io.LimitReader(response.Body, t.Length+1))
	switch {
	case err != nil:
		return failure(err)
	case length != t.Length || [sha256.Size]byte(digest.Sum(nil)) != t.SHA256:
		return WrongBody
	}
	for name, value := range t.Header {
		// The response must have the header once: clients differ in which of several values they use.
		if got := response.Header.Values(name); len(got) != 1 || got[0] != value {
			return WrongHeader
		}
	}
	return OK
}

// failure returns the result for an error. The text of an error may contain bytes of the response, so
// it is not used.
func failure(err error) Result {
	var (
		dns         *net.DNSError
		operation   *net.OpError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		alert       tls.AlertError
		timeout     net.Error
	)
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return Timeout
	case errors.As(err, &dns):
		return ResolveFailed
	case errors.As(err, &certificate), errors.As(err, &record), errors.As(err, &alert), errors.Is(err, http.ErrSchemeMismatch):
		return TLSFailed
	case errors.As(err, &operation) && operation.Op == "dial":
		return ConnectFailed
	}
	return Invalid
}

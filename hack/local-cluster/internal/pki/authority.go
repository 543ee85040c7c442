// Package pki issues the certificates and kubeconfigs of one cluster. A cluster exists
// for hours, so the package neither renews nor stores them.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime is the validity period of every certificate. It exceeds the lifetime of any
// disposable cluster.
const lifetime = 365 * 24 * time.Hour

// Pair is a certificate and its private key, PEM encoded.
type Pair struct {
	Cert []byte
	Key  []byte
}

// Authority signs certificates.
type Authority struct {
	Pair

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Subject is the subject of a certificate.
type Subject struct {
	// User and Groups are the identity of a client.
	User   string
	Groups []string

	// Names and IPs are the addresses of a server. The certificate of a Subject without
	// any of them is only valid for a client.
	Names []string
	IPs   []string
}

// NewAuthority creates a self-signed authority.
func NewAuthority(name string) (*Authority, error) {
	template := newTemplate(pkix.Name{CommonName: name})
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the key of %s: %w", name, err)
	}
	authority := &Authority{cert: template, key: key}
	authority.Pair, err = authority.sign(template, key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	// Only the parsed certificate has the key identifier that issued certificates refer to.
	block, _ := pem.Decode(authority.Cert)
	if authority.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return nil, fmt.Errorf("parse the certificate of %s: %w", name, err)
	}
	return authority, nil
}

// Issue creates a key and signs a certificate for it.
func (a *Authority) Issue(subject Subject) (Pair, error) {
	template := newTemplate(pkix.Name{CommonName: subject.User, Organization: subject.Groups})
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	template.DNSNames = subject.Names
	for _, ip := range subject.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	if len(subject.Names)+len(subject.IPs) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("generate the key of %s: %w", subject.User, err)
	}
	pair, err := a.sign(template, key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign the certificate of %s: %w", subject.User, err)
	}
	return pair, nil
}

// NewSigningKey returns the key pair that signs and verifies service account tokens.
func NewSigningKey() (public, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate the service account key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the service account key: %w", err)
	}
	private, err = encodeKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), private, err
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Pair{}, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: keyPEM}, nil
}

// newTemplate sets NotBefore to an hour ago, which tolerates clock adjustments.
func newTemplate(name pkix.Name) *x509.Certificate {
	start := time.Now().Add(-time.Hour)
	return &x509.Certificate{Subject: name, NotBefore: start, NotAfter: start.Add(lifetime)}
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

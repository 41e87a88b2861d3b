// Package certs makes certificates for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	PEM  []byte
}

// Leaf describes a certificate. Hosts are host names and IP addresses. From and To bound its validity; if zero, From is
// an hour ago and To is in an hour.
type Leaf struct {
	Name     string
	Hosts    []string
	From, To time.Time
}

// Pair is a certificate with its key (PKCS #8), as PEM.
type Pair struct{ Cert, Key []byte }

// NewCA creates an authority with its own key.
func NewCA(tb testing.TB, name string) *CA {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return &CA{key, cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// Issue returns a certificate that servers and clients may use, with its key.
func (ca *CA) Issue(tb testing.TB, l Leaf) Pair {
	tb.Helper()
	if l.From.IsZero() {
		l.From = time.Now().Add(-time.Hour)
	}
	if l.To.IsZero() {
		l.To = time.Now().Add(time.Hour)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		tb.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: l.Name}, NotBefore: l.From, NotAfter: l.To,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range l.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		tb.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return Pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}
}

// Pool returns a certificate pool with this authority and no other.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// TLS returns the pair as a certificate of package tls.
func (p Pair) TLS(tb testing.TB) tls.Certificate {
	tb.Helper()
	c, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Write writes a file and returns its path.
func Write(tb testing.TB, dir, name string, content []byte) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Server returns the TLS configuration of a server with a new certificate for host.
func (ca *CA) Server(tb testing.TB, host string) *tls.Config {
	tb.Helper()
	return &tls.Config{Certificates: []tls.Certificate{ca.Issue(tb, Leaf{Name: host, Hosts: []string{host}}).TLS(tb)}}
}

// File writes the authority's certificate into a file that lasts as long as the test.
func (ca *CA) File(tb testing.TB) string {
	tb.Helper()
	return Write(tb, tb.TempDir(), "ca.pem", ca.PEM)
}

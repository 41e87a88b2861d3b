// Package secure says where secrets may travel: over a connection that is encrypted and whose host was verified, or to
// this very machine. It also reads the authorities that verify hosts.
package secure

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
)

// ErrPlaintext says that a secret would travel over a connection that others can read or take over.
var ErrPlaintext = errors.New("the secret would travel unprotected")

// maxFile bounds a file of authorities, in bytes.
const maxFile = 1 << 20

// Loopback tells whether a host is this machine: a literal loopback address, or localhost. Other names are not looked up,
// since what they mean is up to the network.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return ip != nil && ip.IsLoopback()
}

// LoopbackAddress is Loopback of host:port.
func LoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Loopback(host)
}

// Roots reads authorities from a PEM file. Without a file it returns nil, which means those of the system.
func Roots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if len(b) > maxFile || !roots.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s holds no certificate: write PEM, from BEGIN CERTIFICATE to END CERTIFICATE, at most 1 MiB", file)
	}
	return roots, nil
}

// TLS is what a client needs to verify a host by the authorities in a file, or by those of the system.
func TLS(host, caFile string) (*tls.Config, error) {
	roots, err := Roots(caFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: roots}, nil
}

// Verifies tells whether a connection with these settings is encrypted and verifies its host. nil is plaintext.
func Verifies(c *tls.Config) bool { return c != nil && !c.InsecureSkipVerify }

// Package secure decides which connections may carry secrets: those that are encrypted and whose host was verified, and
// those to the same machine. It also reads the CA certificates that verify hosts.
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

// ErrPlaintext means that a secret would be sent over a connection that others could read or intercept.
var ErrPlaintext = errors.New("the secret would travel unprotected")

// maxFile bounds the size of a file of CA certificates, in bytes.
const maxFile = 1 << 20

// Loopback reports whether host is this machine: a literal loopback address, or localhost. It does not resolve other
// names, because the network decides what they mean.
func Loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return ip != nil && ip.IsLoopback()
}

// LoopbackAddress reports whether the host of a host:port is this machine. It is false if the address has no port.
func LoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && Loopback(host)
}

// Roots reads CA certificates from a PEM file. An empty file name returns nil: the certificates of the system.
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

// TLS returns the settings of a client that verifies host by the CA certificates in caFile, or by those of the system
// if caFile is "".
func TLS(host, caFile string) (*tls.Config, error) {
	roots, err := Roots(caFile)
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, RootCAs: roots}, nil
}

// Verifies reports whether a connection with these settings is encrypted and verifies its host. nil means plaintext.
func Verifies(c *tls.Config) bool { return c != nil && !c.InsecureSkipVerify }

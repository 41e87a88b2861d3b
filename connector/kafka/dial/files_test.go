package dial

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/test/certs"
)

// TestRotation: each new connection uses the current content of the files. Unusable content is logged once, and the
// dialer keeps the content before it until the files are usable again.
func TestRotation(t *testing.T) {
	pki := newPKI(t)
	var presented string // the subject of the client's certificate
	config := pki.mutual()
	config.VerifyConnection = func(s tls.ConnectionState) error {
		presented = s.PeerCertificates[0].Subject.CommonName
		return nil
	}
	_, address := broker(t, kfake.TLS(config))
	cert, key := pki.pair("client", certs.Leaf{Name: "first"})
	d, log, reg := dialer(t, Config{TLS: &TLS{CAFile: pki.CAFile, CertFile: cert, KeyFile: key}})
	works := func(want string) {
		t.Helper()
		if _, err := opens(t, d, address); err != nil || presented != want {
			t.Fatalf("%v, presented %q, want %q", err, presented, want)
		}
	}
	works("first")
	works("first")

	second := pki.ca.Issue(t, certs.Leaf{Name: "second"})
	for range 3 { // the new certificate is in its file, but its key is not yet
		certs.Write(t, pki.dir, "client.pem", second.Cert)
		works("first")
	}
	if n := log.count("failed to use changed files"); n != 1 {
		t.Errorf("said %d times that a file is broken", n)
	}
	certs.Write(t, pki.dir, "client-key.pem", second.Key)
	works("second")

	certs.Write(t, pki.dir, "ca.pem", []byte("-----BEGIN CERT"))
	works("second")
	if err := os.Remove(pki.CAFile); err != nil {
		t.Fatal(err)
	}
	works("second")
	if n := metric(t, reg, "sluice_kafka_unusable_files_total", ""); n != 3 {
		t.Errorf("counted %v broken files, want 3", n)
	}
	if n := log.count("new connections use them"); n != 1 {
		t.Errorf("said %d times that files changed", n)
	}

	other := certs.NewCA(t, "another")
	certs.Write(t, pki.dir, "ca.pem", other.PEM)
	if _, err := opens(t, d, address); causeOf(err) != UnknownCA {
		t.Fatalf("%v, want the changed authority to count", err)
	}
	certs.Write(t, pki.dir, "ca.pem", append(other.PEM, pki.ca.PEM...)) // both authorities are trusted, so that brokers can change from one to the other
	works("second")
}

// TestBadFiles: New refuses files that cannot be used, before any connection.
func TestBadFiles(t *testing.T) {
	pki := newPKI(t)
	cert, key := pki.pair("a", certs.Leaf{})
	_, otherKey := pki.pair("b", certs.Leaf{})
	empty := certs.Write(t, pki.dir, "empty", []byte(" \n"))
	encrypted := certs.Write(t, pki.dir, "encrypted", []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAA==\n-----END ENCRYPTED PRIVATE KEY-----\n"))
	large := certs.Write(t, pki.dir, "large", make([]byte, 1<<20+1))
	for _, tt := range []struct {
		err  error
		want string
	}{
		{CheckCA(pki.CAFile), ""},
		{CheckPair(cert, key), ""},
		{CheckSecret(certs.Write(t, pki.dir, "secret", []byte("x\n"))), ""},
		{CheckCA(empty), "holds no certificate"},
		{CheckCA(pki.dir + "/missing"), "no such file"},
		{CheckCA(large), "larger than 1 MiB"},
		{CheckPair(cert, otherKey), "does not match"},
		{CheckPair(cert, encrypted), "is encrypted"},
		{CheckPair(cert, pki.dir+"/missing"), "no such file"},
		{CheckSecret(empty), "is empty"},
	} {
		if tt.want == "" && tt.err != nil || tt.want != "" && (tt.err == nil || !strings.Contains(tt.err.Error(), tt.want)) {
			t.Errorf("%v, want %q", tt.err, tt.want)
		}
	}
	if _, err := New(Config{TLS: &TLS{CAFile: pki.CAFile, CertFile: cert, KeyFile: otherKey}}); causeOf(err) != BadFile {
		t.Errorf("%v, want a bad file", err)
	}
}

// TestRemembered: for half a minute after brokers have refused the credentials, the dialer returns the same refusal
// without a new attempt, unless the files change. After a change it tries at once.
func TestRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := &kfake.VirtualNetwork{}
		fake, address := broker(t, kfake.ListenFn(network.Listen), kfake.Ports(9092))
		defer fake.Close()
		tries := 0
		answer(fake, kmsg.SASLHandshake, func(kmsg.Request, *kmsg.SASLHandshakeResponse) {})
		answer(fake, kmsg.SASLAuthenticate, func(req kmsg.Request, r *kmsg.SASLAuthenticateResponse) {
			tries++
			if string(req.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes) != "\x00sluice\x00right" {
				r.ErrorCode = 58
			}
		})
		dir := t.TempDir()
		file := certs.Write(t, dir, "password", []byte("wrong\n"))
		d, _, _ := dialer(t, Config{
			Dial: network.DialContext,
			SASL: &SASL{Mechanism: Plain, Username: "sluice", PasswordFile: file, InsecurePlaintext: true},
		})
		attempt := func(want Cause, wantTries int) {
			t.Helper()
			conn, err := d.DialContext(t.Context(), "tcp", address)
			if err == nil {
				_ = conn.Close()
			}
			if causeOf(err) != want || (want == "") != (err == nil) || tries != wantTries {
				t.Fatalf("%v after %d tries, want %q after %d", err, tries, want, wantTries)
			}
		}
		attempt(CredentialsRefused, 1)
		attempt(CredentialsRefused, 1)
		time.Sleep(refusalTTL - time.Millisecond)
		attempt(CredentialsRefused, 1)
		time.Sleep(time.Millisecond)
		attempt(CredentialsRefused, 2)
		certs.Write(t, dir, "password", []byte("wrong, too"))
		attempt(CredentialsRefused, 3)
		certs.Write(t, dir, "password", []byte("right\r\n"))
		attempt("", 4)
		attempt("", 5)
	})
}

// TestUntrusted: failed certificate verifications that TestCauses does not provoke have the right cause.
func TestUntrusted(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want Cause
	}{
		{x509.UnknownAuthorityError{}, UnknownCA},
		{x509.CertificateInvalidError{Reason: x509.Expired}, Expired},
		{x509.CertificateInvalidError{Reason: x509.IncompatibleUsage}, BadCertificate},
		{x509.HostnameError{Host: "h"}, WrongHost},
		{errors.New("anything"), BadCertificate},
	} {
		if got, _ := untrusted(&tls.CertificateVerificationError{Err: tt.err}); got != tt.want {
			t.Errorf("%v is %s, want %s", tt.err, got, tt.want)
		}
	}
}

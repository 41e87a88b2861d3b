package secure

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/test/certs"
)

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "[::1]": true, "::ffff:127.0.0.1": true,
		"": false, "localhost.": false, "localhost.example": false, "x.localhost": false, "127.0.0.1.example": false, "0.0.0.0": false,
		"10.0.0.1": false, "2130706433": false, "0x7f.1": false, "kafka": false, "169.254.169.254": false,
	} {
		if got := Loopback(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
	for address, want := range map[string]bool{"127.0.0.1:9092": true, "[::1]:9092": true, "localhost:1": true, "localhost": false, "kafka:9092": false} {
		if got := LoopbackAddress(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

func TestRoots(t *testing.T) {
	dir := t.TempDir()
	good := certs.Write(t, dir, "ca.pem", certs.NewCA(t, "test").PEM)
	if c, err := TLS("db.example", good); err != nil || c.RootCAs == nil || c.ServerName != "db.example" || !Verifies(c) || c.MinVersion < tls.VersionTLS12 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := TLS("db.example", ""); err != nil || c.RootCAs != nil {
		t.Errorf("without a file: %+v, %v", c, err)
	}
	large := filepath.Join(dir, "large.pem")
	if err := os.WriteFile(large, append(certs.NewCA(t, "test").PEM, make([]byte, maxFile)...), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		certs.Write(t, dir, "empty.pem", nil): "BEGIN CERTIFICATE", large: "1 MiB", filepath.Join(dir, "none"): "no such file",
	} {
		if _, err := TLS("x", file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	if Verifies(nil) || Verifies(&tls.Config{InsecureSkipVerify: true}) {
		t.Error("plaintext, or any host, counts as verified")
	}
}

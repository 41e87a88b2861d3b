package webconfig_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/secure/webconfig"
	"sluice/test/certs"
)

// write writes the files, given by name and content, into the folder dir.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func pair(t *testing.T, hosts ...string) map[string]string {
	t.Helper()
	p := certs.NewCA(t, "authority").Issue(t, certs.Leaf{Name: "ops", Hosts: hosts})
	return map[string]string{"cert.pem": string(p.Cert), "key.pem": string(p.Key)}
}

const withTLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, pair(t, "ops.example.com", "10.0.0.7"))
	for name, c := range map[string]struct {
		text, want string // want is "" for a usable file
		tls        bool
	}{
		"TLS":        {withTLS, "", true},
		"Limits":     {withTLS + "rate_limit: {burst: 5, interval: 1s}\nhttp_server_config: {headers: {Strict-Transport-Security: max-age=60}}\n", "", true},
		"NoTLS":      {"rate_limit: {burst: 5, interval: 1s}\n", "", false},
		"Empty":      {"", "", false},
		"Users":      {withTLS + "basic_auth_users: {ada: $2y$10$canary}\n", "basic_auth_users: remove them", false},
		"OldTLS":     {"tls_server_config: {cert_file: cert.pem, key_file: key.pem, min_version: TLS10}\n", "before 1.2", false},
		"NoKey":      {"tls_server_config: {cert_file: cert.pem}\n", "missing one of key or key_file", false},
		"NoFile":     {"tls_server_config: {cert_file: gone.pem, key_file: key.pem}\n", "no such file", false},
		"UnknownKey": {withTLS + "canary: 1\n", "is not a web configuration", false},
		"Header":     {"http_server_config: {headers: {Set-Cookie: canary}}\n", "header", false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, "web.yaml")
			write(t, dir, map[string]string{"web.yaml": c.text})
			got, err := webconfig.Read(path)
			switch {
			case c.want != "":
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
					t.Error(err)
				}
			case err != nil:
				t.Error(err)
			case (got.TLS != nil) != c.tls || got.Names("ops.example.com") != c.tls || got.Names("10.0.0.7") != c.tls || got.Names("evil.example.com"):
				t.Errorf("%+v", got)
			}
		})
	}
	if _, err := webconfig.Read(filepath.Join(dir, "gone.yaml")); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// TestOpen_Changes: a new certificate is used without a restart. If a changed file has no TLS any more, the old
// configuration stays in force.
func TestOpen_Changes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	write(t, dir, pair(t, "first.example.com"))
	write(t, dir, map[string]string{"web.yaml": withTLS + "rate_limit: {burst: 5, interval: 2s}\n"})
	f, err := webconfig.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Value().Rate; r.Burst != 5 || r.Interval != 2*time.Second {
		t.Errorf("%+v", r)
	}
	refresh := func(name string) {
		t.Helper()
		if err := f.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !f.Value().Names(name) {
			t.Errorf("the certificate is not for %s", name)
		}
	}
	write(t, dir, pair(t, "second.example.com"))
	refresh("second.example.com")
	write(t, dir, map[string]string{"web.yaml": ""})
	refresh("second.example.com")
	write(t, dir, map[string]string{"web.yaml": withTLS + "basic_auth_users: {ada: x}\n"})
	refresh("second.example.com")
}

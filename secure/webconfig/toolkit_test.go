package webconfig_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"sluice/secure/webconfig"
	"sluice/test/certs"
)

// TestRead_AsExporterToolkit reads each file with exporter-toolkit, too. Both must accept the same files, except for
// those that are refused on purpose, and read the same settings of TLS from them.
func TestRead_AsExporterToolkit(t *testing.T) {
	dir := t.TempDir()
	ca := certs.NewCA(t, "authority of clients")
	files := pair(t, "ops.example.com")
	files["ca.pem"], files["empty.pem"] = string(ca.PEM), "no certificate"
	write(t, dir, files)
	text := "{cert: |\n" + indented(files["cert.pem"]) + ", key: |\n" + indented(files["key.pem"]) + "}"
	const both = "cert_file: cert.pem, key_file: key.pem"
	clients := both + ", client_ca_file: ca.pem, client_auth_type: "
	for name, c := range map[string]struct {
		tls, more string
		stricter  bool // exporter-toolkit accepts it
	}{
		"Files":           {tls: "{" + both + "}"},
		"Absolute":        {tls: "{cert_file: " + dir + "/cert.pem, key_file: " + dir + "/key.pem}"},
		"Texts":           {tls: strings.NewReplacer("{cert: |\n", "\n  cert: |\n", ", key: |\n", "\n  key: |\n", "}", "").Replace(text)},
		"NoSection":       {more: "http_server_config: {http2: true}"},
		"Versions":        {tls: "{" + both + ", min_version: TLS13, max_version: TLS13}"},
		"OldVersion":      {tls: "{" + both + ", max_version: TLS11}", stricter: true},
		"TurnedVersions":  {tls: "{" + both + ", min_version: TLS13, max_version: TLS12}", stricter: true},
		"UnknownVersion":  {tls: "{" + both + ", min_version: SSL3}"},
		"Suites":          {tls: "{" + both + ", cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384], prefer_server_cipher_suites: false}"},
		"UnknownSuite":    {tls: "{" + both + ", cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}"},
		"Curves":          {tls: "{" + both + ", curve_preferences: [CurveP256, CurveP384, CurveP521, X25519]}"},
		"UnknownCurve":    {tls: "{" + both + ", curve_preferences: [P256]}"},
		"RequestClient":   {tls: "{" + clients + "RequestClientCert}"},
		"RequireClient":   {tls: "{" + clients + "RequireClientCert}"},
		"RequireAny":      {tls: "{" + clients + "RequireAnyClientCert}"},
		"VerifyIfGiven":   {tls: "{" + clients + "VerifyClientCertIfGiven}"},
		"VerifyClient":    {tls: "{" + clients + "RequireAndVerifyClientCert, client_allowed_sans: [a]}"},
		"NoClient":        {tls: "{" + clients + "NoClientCert}"},
		"UnknownPolicy":   {tls: "{" + clients + "Sometimes}"},
		"NoPolicy":        {tls: "{" + both + ", client_ca_file: ca.pem}"},
		"NoAuthorities":   {tls: "{" + both + ", client_ca_file: empty.pem, client_auth_type: RequireAndVerifyClientCert}", stricter: true},
		"GoneAuthorities": {tls: "{" + both + ", client_ca_file: gone.pem, client_auth_type: RequireAndVerifyClientCert}"},
		"NoCertificate":   {tls: "{key_file: key.pem}"},
		"OnlyPolicy":      {tls: "{client_auth_type: NoClientCert}"},
		"NoPair":          {tls: "{cert_file: ca.pem, key_file: key.pem}"},
		"Headers":         {more: "http_server_config: {headers: {X-Frame-Options: deny, X-Content-Type-Options: nosniff, Content-Security-Policy: any}}"},
		"HeaderValue":     {more: "http_server_config: {headers: {X-Frame-Options: allow}}"},
		"OtherHeader":     {more: "http_server_config: {headers: {Set-Cookie: a}}"},
		"Rate":            {more: "rate_limit: {burst: 20, interval: 100ms}"},
		"NoBurst":         {more: "rate_limit: {interval: 100ms}", stricter: true},
		"NegativeRate":    {more: "rate_limit: {burst: 1, interval: -1s}", stricter: true},
		"UnknownKey":      {tls: "{" + both + ", cert_fil: x}"},
		"TwiceAKey":       {tls: "{" + both + ", " + both + "}"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name+".yaml")
			body := c.more + "\n"
			if c.tls != "" {
				body += "tls_server_config: " + c.tls + "\n"
			}
			write(t, dir, map[string]string{name + ".yaml": body})
			got, err := webconfig.Read(path)
			theirs := web.Validate(path)
			if (err == nil) != (theirs == nil && !c.stricter) || c.stricter && theirs != nil {
				t.Fatalf("%v, exporter-toolkit: %v", err, theirs)
			}
			if err != nil {
				if strings.Contains(err.Error(), "BEGIN") {
					t.Errorf("quotes the file: %v", err)
				}
				return
			}
			want := toolkit(t, path)
			if (got.TLS == nil) != (want == nil) {
				t.Fatalf("TLS is %t, with exporter-toolkit %t", got.TLS != nil, want != nil)
			}
			if want == nil {
				return
			}
			cert, err := want.GetCertificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(got.TLS.Certificates[0].Certificate, cert.Certificate, slices.Equal) || got.TLS.MinVersion != want.MinVersion ||
				got.TLS.MaxVersion != want.MaxVersion || !slices.Equal(got.TLS.CipherSuites, want.CipherSuites) ||
				!slices.Equal(got.TLS.CurvePreferences, want.CurvePreferences) || got.TLS.ClientAuth != want.ClientAuth ||
				(got.TLS.ClientCAs == nil) != (want.ClientCAs == nil) || want.ClientCAs != nil && !got.TLS.ClientCAs.Equal(want.ClientCAs) ||
				(got.TLS.VerifyConnection == nil) != (want.VerifyPeerCertificate == nil) {
				t.Errorf("another configuration than that of exporter-toolkit: versions %x-%x, suites %x, curves %v, clients %v",
					got.TLS.MinVersion, got.TLS.MaxVersion, got.TLS.CipherSuites, got.TLS.CurvePreferences, got.TLS.ClientAuth)
			}
		})
	}
}

// toolkit returns what exporter-toolkit makes of a file, nil without TLS.
func toolkit(t *testing.T, path string) *tls.Config {
	t.Helper()
	file := web.Config{TLSConfig: web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if !file.TLSConfig.IsEnabled() {
		return nil
	}
	file.TLSConfig.SetDirectory(filepath.Dir(path))
	c, err := web.ConfigToTLSConfig(&file.TLSConfig)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// indented returns a PEM text as the lines of a block in YAML.
func indented(pem string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(pem), "\n", "\n    ")
}

// TestClients_Names lets clients connect whose certificates have a name of client_allowed_sans, or none. A client that
// resumes its session is asked again.
func TestClients_Names(t *testing.T) {
	dir := t.TempDir()
	ca := certs.NewCA(t, "authority of clients")
	write(t, dir, pair(t, "127.0.0.1"))
	write(t, dir, map[string]string{"ca.pem": string(ca.PEM), "web.yaml": "tls_server_config: {cert_file: cert.pem, key_file: key.pem, " +
		"client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert, client_allowed_sans: [console.example, 10.1.2.3]}\n"})
	c, err := webconfig.Read(filepath.Join(dir, "web.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"console.example": true, "10.1.2.3": true, "other.example": false, "10.1.2.4": false, "": false} {
		leaf := certs.Leaf{Name: "console.example"} // only names count that are alternative names of the subject
		if host != "" {
			leaf.Hosts = []string{host}
		}
		p := ca.Issue(t, leaf)
		cert, err := tls.X509KeyPair(p.Cert, p.Key)
		if err != nil {
			t.Fatal(err)
		}
		client := &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true, ServerName: "ops", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		if err := handshake(t, c.TLS, client); (err == nil) != want {
			t.Errorf("%q: %v", host, err)
		}
		if !want {
			continue
		}
		narrow := c.TLS.Clone()
		narrow.VerifyConnection = func(s tls.ConnectionState) error {
			if !s.DidResume {
				t.Errorf("%q: the second connection does not resume", host)
			}
			return x509.UnknownAuthorityError{}
		}
		if err := handshake(t, narrow, client); err == nil {
			t.Errorf("%q: a resumed session was not asked", host)
		}
	}
}

// handshake connects client and server, and returns the server's error.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		s := tls.Server(conn, server)
		err = s.HandshakeContext(t.Context())
		if err == nil {
			_, err = s.Write([]byte{1}) // the client reads it, and with it the ticket of the session
		}
		_ = s.Close()
		done <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := tls.Client(conn, client)
	defer func() { _ = s.Close() }()
	if _, err := s.Read(make([]byte, 1)); err != nil && !strings.Contains(err.Error(), "tls") {
		t.Logf("client: %v", err)
	}
	return <-done
}

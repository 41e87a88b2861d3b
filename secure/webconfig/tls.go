package webconfig

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// tlsFile is the section tls_server_config as it is written. Cert and ClientCA are PEM texts; the files are paths.
type tlsFile struct {
	Cert         string   `yaml:"cert"`
	Key          string   `yaml:"key"`
	ClientCA     string   `yaml:"client_ca"`
	CertFile     string   `yaml:"cert_file"`
	KeyFile      string   `yaml:"key_file"`
	ClientCAFile string   `yaml:"client_ca_file"`
	ClientAuth   string   `yaml:"client_auth_type"`
	ClientSANs   []string `yaml:"client_allowed_sans"`
	CipherSuites []string `yaml:"cipher_suites"`
	Curves       []string `yaml:"curve_preferences"`
	MinVersion   string   `yaml:"min_version"`
	MaxVersion   string   `yaml:"max_version"`
	// PreferServerCipherSuites is accepted and ignored, as exporter-toolkit does: crypto/tls chooses the suite.
	PreferServerCipherSuites bool `yaml:"prefer_server_cipher_suites"`
}

// enabled reports whether the section asks for TLS.
func (f *tlsFile) enabled() bool {
	return f.Cert != "" || f.CertFile != "" || f.Key != "" || f.KeyFile != "" || f.ClientCA != "" || f.ClientCAFile != "" || f.ClientAuth != ""
}

// config returns the configuration that the section describes, with its certificate loaded. Relative paths are relative
// to dir. No error quotes a value of the section, because a key may stand in the wrong place.
func (f *tlsFile) config(dir string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}
	return c, cmp.Or(f.setCertificate(c, dir), f.setVersions(c), f.setSuites(c), f.setClients(c, dir))
}

func (f *tlsFile) setCertificate(c *tls.Config, dir string) error {
	cert, err := textOrFile(f.Cert, f.CertFile, dir)
	if err != nil {
		return fmt.Errorf("cert_file: %w", err)
	}
	key, err := textOrFile(f.Key, f.KeyFile, dir)
	if err != nil {
		return fmt.Errorf("key_file: %w", err)
	}
	switch {
	case len(cert) == 0:
		return errors.New("missing one of cert or cert_file")
	case len(key) == 0:
		return errors.New("missing one of key or key_file")
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("cert_file and key_file are no pair of certificate and key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return nil
}

// textOrFile returns the content of a file. If there is no path, it returns the text.
func textOrFile(text, path, dir string) ([]byte, error) {
	if path == "" {
		return []byte(text), nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return os.ReadFile(path)
}

func (f *tlsFile) setVersions(c *tls.Config) error {
	for _, v := range []struct {
		key, value string
		to         *uint16
	}{{"min_version", f.MinVersion, &c.MinVersion}, {"max_version", f.MaxVersion, &c.MaxVersion}} {
		switch v.value {
		case "":
		case "TLS12":
			*v.to = tls.VersionTLS12
		case "TLS13":
			*v.to = tls.VersionTLS13
		case "TLS10", "TLS11":
			return fmt.Errorf("%s allows TLS before 1.2: write TLS12 or TLS13", v.key)
		default:
			return fmt.Errorf("%s is no version of TLS: write TLS12 or TLS13", v.key)
		}
	}
	if c.MaxVersion < c.MinVersion {
		return errors.New("max_version is below min_version: remove one of them")
	}
	return nil
}

func (f *tlsFile) setSuites(c *tls.Config) error {
	known := tls.CipherSuites()
	for i, name := range f.CipherSuites {
		at := slices.IndexFunc(known, func(s *tls.CipherSuite) bool { return s.Name == name })
		if at < 0 {
			return fmt.Errorf("entry %d of cipher_suites is no cipher suite that Go offers: remove it", i+1)
		}
		c.CipherSuites = append(c.CipherSuites, known[at].ID)
	}
	curves := map[string]tls.CurveID{"CurveP256": tls.CurveP256, "CurveP384": tls.CurveP384, "CurveP521": tls.CurveP521, "X25519": tls.X25519}
	for i, name := range f.Curves {
		curve, ok := curves[name]
		if !ok {
			return fmt.Errorf("entry %d of curve_preferences is not CurveP256, CurveP384, CurveP521 or X25519", i+1)
		}
		c.CurvePreferences = append(c.CurvePreferences, curve)
	}
	return nil
}

func (f *tlsFile) setClients(c *tls.Config, dir string) error {
	policies := map[string]tls.ClientAuthType{
		"": tls.NoClientCert, "NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
		"RequireClientCert": tls.RequireAnyClientCert, "RequireAnyClientCert": tls.RequireAnyClientCert,
		"VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven, "RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
	}
	policy, ok := policies[f.ClientAuth]
	if !ok {
		return errors.New("client_auth_type is unknown: to require client certificates write RequireAndVerifyClientCert")
	}
	c.ClientAuth = policy
	authorities, err := textOrFile(f.ClientCA, f.ClientCAFile, dir)
	if err != nil {
		return fmt.Errorf("client_ca_file: %w", err)
	}
	if len(authorities) > 0 {
		if policy == tls.NoClientCert {
			return errors.New("client_ca_file has no effect without client_auth_type: write RequireAndVerifyClientCert")
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(authorities) {
			return errors.New("client_ca_file has no certificate in PEM")
		}
	}
	if f.ClientSANs != nil {
		c.VerifyConnection = f.allowed
	}
	return nil
}

// allowed returns an error unless the client's certificate has a name of client_allowed_sans. It also runs when a client
// resumes a session of TLS, which VerifyPeerCertificate would not.
func (f *tlsFile) allowed(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the client has no certificate, and client_allowed_sans asks for one")
	}
	cert := s.PeerCertificates[0]
	names := slices.Concat(cert.DNSNames, cert.EmailAddresses)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(f.ClientSANs, name) }) {
		return fmt.Errorf("no name of the client's certificate is in client_allowed_sans: %s", strings.Join(names, ", "))
	}
	return nil
}

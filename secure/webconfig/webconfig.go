// Package webconfig reads a web configuration file of Prometheus' exporter-toolkit: TLS, response headers and a rate
// limit of a server. It refuses basic_auth_users: the ops API knows its callers by their tokens alone.
package webconfig

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"sluice/secure/reload"
)

// Config is the content of a file, with the certificates that it names.
type Config struct {
	TLS     *tls.Config // nil if there is no TLS; otherwise it has one certificate
	Headers map[string]string
	Rate    web.RateLimiterConfig // zero for no limit
}

// maxFile bounds the size of the file, in bytes.
const maxFile = 1 << 20

// Read reads and checks a file. Paths in it are relative to its folder.
func Read(path string) (*Config, error) {
	file := struct {
		TLS   web.TLSConfig         `yaml:"tls_server_config"`
		HTTP  web.HTTPConfig        `yaml:"http_server_config"`
		Rate  web.RateLimiterConfig `yaml:"rate_limit"`
		Users map[string]yaml.Node  `yaml:"basic_auth_users"`
	}{TLS: web.TLSConfig{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13}}
	content, err := readFile(path)
	if err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		// The parser's error quotes the file, which may contain a key, so it is not returned.
		return nil, fmt.Errorf("%s is not a web configuration of exporter-toolkit: write tls_server_config with cert_file and key_file", path)
	}
	if len(file.Users) > 0 {
		return nil, fmt.Errorf("%s has basic_auth_users: remove them; ops.tokens_file alone says who may use the API", path)
	}
	if err := web.Validate(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &Config{Headers: file.HTTP.Header, Rate: file.Rate}
	if !file.TLS.IsEnabled() {
		return c, nil
	}
	if file.TLS.MinVersion < tls.VersionTLS12 {
		return nil, fmt.Errorf("%s allows TLS before 1.2: write min_version: TLS12 or TLS13", path)
	}
	file.TLS.SetDirectory(filepath.Dir(path))
	if c.TLS, err = web.ConfigToTLSConfig(&file.TLS); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, c.load(path)
}

// load reads the certificate once, so that opening a connection does not read files.
func (c *Config) load(path string) error {
	cert, err := c.TLS.GetCertificate(nil)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c.TLS.GetCertificate, c.TLS.Certificates = nil, []tls.Certificate{*cert}
	return nil
}

// Names reports whether the certificate is for a host. Without TLS it is for none.
func (c *Config) Names(host string) bool {
	if c == nil || c.TLS == nil {
		return false
	}
	leaf := c.TLS.Certificates[0].Leaf
	return leaf != nil && leaf.VerifyHostname(host) == nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	content, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s is larger than 1 MiB", path)
	}
	return content, err
}

// Open reads a file. While the Watch of the returned File runs, new certificates in the file come into force. A change
// that adds or removes TLS is refused, and the content before it stays in force.
func Open(ctx context.Context, path string, logger *slog.Logger) (*reload.File[Config], error) {
	first, err := Read(path)
	if err != nil {
		return nil, err
	}
	read := func(path string) (*Config, error) {
		c, err := Read(path)
		if err == nil && (c.TLS == nil) != (first.TLS == nil) {
			return nil, fmt.Errorf("%s: TLS cannot begin or end while the server runs: restart it", path)
		}
		return c, err
	}
	return reload.Open(ctx, path, read, func(ctx context.Context, before, now *Config) {
		if before != nil && !before.sameCertificate(now) {
			logger.InfoContext(ctx, "certificate of the ops API changed; new connections use it", "file", path)
		}
	}, logger)
}

func (c *Config) sameCertificate(o *Config) bool {
	if c.TLS == nil || o.TLS == nil {
		return c.TLS == o.TLS
	}
	a, b := c.TLS.Certificates[0].Certificate, o.TLS.Certificates[0].Certificate
	return len(a) > 0 && len(b) > 0 && bytes.Equal(a[0], b[0])
}

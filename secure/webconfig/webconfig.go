// Package webconfig reads a web configuration file in the format of Prometheus' exporter-toolkit: TLS, response headers
// and a rate limit of a server. It refuses basic_auth_users: the ops API knows its callers by their tokens alone.
//
// A release does not link exporter-toolkit, whose imports make it a third larger (docs/adr/0024-releases.md). A test
// compares what both read.
package webconfig

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"sluice/secure/reload"
)

// Config is the content of a file, with the certificates that it names.
type Config struct {
	TLS     *tls.Config // nil if there is no TLS; otherwise it has one certificate
	Headers map[string]string
	Rate    Rate // zero for no limit
}

// Rate is the limit of requests: one each Interval, and Burst at once.
type Rate struct {
	Burst    int           `yaml:"burst"`
	Interval time.Duration `yaml:"interval"`
}

// maxFile bounds the size of the file, in bytes.
const maxFile = 1 << 20

// Read reads and checks a file. Paths in it are relative to its folder.
func Read(path string) (*Config, error) {
	var file struct {
		TLS  tlsFile `yaml:"tls_server_config"`
		HTTP struct {
			HTTP2   bool              `yaml:"http2"` // accepted and ignored: the server speaks HTTP/1.1
			Headers map[string]string `yaml:"headers"`
		} `yaml:"http_server_config"`
		Rate  Rate                 `yaml:"rate_limit"`
		Users map[string]yaml.Node `yaml:"basic_auth_users"`
	}
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
	if err := checkHeaders(file.HTTP.Headers); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r := file.Rate; r.Interval < 0 || r.Burst < 0 || r.Interval > 0 && r.Burst == 0 {
		return nil, fmt.Errorf("%s: rate_limit lets no request pass: write burst: 20, interval: 100ms", path)
	}
	c := &Config{Headers: file.HTTP.Headers, Rate: file.Rate}
	if !file.TLS.enabled() {
		return c, nil
	}
	if c.TLS, err = file.TLS.config(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("%s: tls_server_config: %w", path, err)
	}
	return c, nil
}

// checkHeaders returns an error if a header is not one of those that exporter-toolkit lets a file set.
func checkHeaders(headers map[string]string) error {
	values := map[string][]string{ // no values: any
		"Strict-Transport-Security": nil, "X-XSS-Protection": nil, "Content-Security-Policy": nil,
		"X-Content-Type-Options": {"nosniff"}, "X-Frame-Options": {"deny", "sameorigin"},
	}
	for name, value := range headers {
		allowed, known := values[name]
		if !known {
			return fmt.Errorf("a header of http_server_config cannot be set: use only %s", strings.Join(slices.Sorted(maps.Keys(values)), ", "))
		}
		if len(allowed) > 0 && !slices.Contains(allowed, value) {
			return fmt.Errorf("the header %s takes only %s", name, strings.Join(allowed, ", "))
		}
	}
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

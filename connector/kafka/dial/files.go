package dial

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
)

// maxFile bounds the files that are read, in bytes.
const maxFile = 1 << 20

// fingerprint is a hash of file contents.
type fingerprint [sha256.Size]byte

// material is what the files contain, parsed.
type material struct {
	roots    *x509.CertPool   // nil for the authorities of the system
	cert     *tls.Certificate // nil if none is configured
	password string
	token    string
	sum      fingerprint
}

// files reads the files that the configuration names. If a file becomes unusable, files keeps its last usable content,
// because another program may just be writing it.
type files struct {
	tls     *TLS
	sasl    *SASL
	logger  *slog.Logger
	metrics *metrics

	mu    sync.Mutex
	parts []*part
}

// part is a set of files that are used together: the authorities, a certificate with its key, or a secret.
type part struct {
	paths []string
	// parse parses the contents. The function that it returns writes the result into a material. Neither may keep
	// contents.
	parse func(contents [][]byte) (func(*material), error)

	sum    fingerprint     // the fingerprint of the content in force
	apply  func(*material) // puts the content in force into a material; nil if no content was ever usable
	broken fingerprint     // the fingerprint of the last content that could not be used
}

func newFiles(cfg Config, m *metrics) *files {
	f := &files{tls: cfg.TLS, sasl: cfg.SASL, logger: cfg.Logger, metrics: m}
	if t := cfg.TLS; t != nil && t.CAFile != "" {
		f.parts = append(f.parts, &part{paths: []string{t.CAFile}, parse: parseRoots})
	}
	if t := cfg.TLS; t != nil && t.CertFile != "" {
		f.parts = append(f.parts, &part{paths: []string{t.CertFile, t.KeyFile}, parse: parsePair})
	}
	if s := cfg.SASL; s != nil && s.PasswordFile != "" {
		f.parts = append(f.parts, &part{paths: []string{s.PasswordFile}, parse: parseSecret(func(m *material, v string) { m.password = v })})
	}
	if s := cfg.SASL; s != nil && s.TokenFile != "" {
		f.parts = append(f.parts, &part{paths: []string{s.TokenFile}, parse: parseSecret(func(m *material, v string) { m.token = v })})
	}
	return f
}

// load reads all files and returns what they contain. For an unusable file it uses the last usable content. If a file
// has never been usable, the error is an [*Error] with cause [BadFile].
func (f *files) load() (*material, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &material{}
	if f.sasl != nil {
		m.password = f.sasl.Password
	}
	all := sha256.New()
	for _, p := range f.parts {
		if err := f.refresh(p); err != nil {
			return nil, &Error{Address: strings.Join(p.paths, ", "), Step: StepFiles, Cause: BadFile, Err: err}
		}
		p.apply(m)
		all.Write(p.sum[:])
	}
	all.Sum(m.sum[:0])
	return m, nil
}

// refresh reads the files of p again. If they are unusable, p keeps its last usable content, and refresh returns an
// error only if there is none.
func (f *files) refresh(p *part) error {
	contents, sum, err := p.read()
	if err == nil && p.apply != nil && sum == p.sum {
		p.broken = fingerprint{}
		return nil
	}
	var apply func(*material)
	if err == nil {
		apply, err = p.parse(contents)
	}
	switch {
	case err == nil:
		if p.apply != nil {
			f.logger.Info("files for Kafka changed; new connections use them", "files", p.paths)
		}
		p.sum, p.apply, p.broken = sum, apply, fingerprint{}
		return nil
	case p.apply == nil:
		return err
	}
	if p.broken != sum {
		p.broken = sum
		f.metrics.files.Inc()
		f.logger.Warn("failed to use changed files for Kafka; keeping their last content", "files", p.paths, "err", err)
	}
	return nil
}

// read returns the contents of the files and a fingerprint of them. A file that cannot be read counts in the
// fingerprint with its error.
func (p *part) read() (contents [][]byte, sum fingerprint, err error) {
	h := sha256.New()
	for _, path := range p.paths {
		b, readErr := readFile(path)
		if readErr != nil {
			err = errors.Join(err, readErr)
			fmt.Fprintf(h, "%v", readErr)
		}
		own := sha256.Sum256(b)
		h.Write(own[:])
		contents = append(contents, b)
	}
	h.Sum(sum[:0])
	return contents, sum, err
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // read only
	b, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = errors.New("larger than 1 MiB")
	}
	return b, err
}

func parseRoots(contents [][]byte) (func(*material), error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(contents[0]) {
		return nil, errors.New("holds no certificate: write PEM, from BEGIN CERTIFICATE to END CERTIFICATE")
	}
	return func(m *material) { m.roots = roots }, nil
}

func parsePair(contents [][]byte) (func(*material), error) {
	cert, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		if bytes.Contains(contents[1], []byte("ENCRYPTED")) {
			return nil, errors.New("the key is encrypted: write it without a passphrase and protect the file")
		}
		return nil, err
	}
	return func(m *material) { m.cert = &cert }, nil
}

func parseSecret(set func(*material, string)) func([][]byte) (func(*material), error) {
	return func(contents [][]byte) (func(*material), error) {
		v := strings.TrimRight(string(contents[0]), "\r\n")
		if strings.TrimSpace(v) == "" {
			return nil, errors.New("is empty")
		}
		return func(m *material) { set(m, v) }, nil
	}
}

// CheckCA validates a file of authorities.
func CheckCA(path string) error { return check(parseRoots, path) }

// CheckPair validates a certificate and its key.
func CheckPair(cert, key string) error { return check(parsePair, cert, key) }

// CheckSecret validates a file with a password or a token.
func CheckSecret(path string) error {
	_, err := ReadSecret(path)
	return err
}

// ReadSecret returns the content of a secret file without the line end. An error does not contain the secret.
func ReadSecret(path string) (secret string, err error) {
	m := &material{}
	parse := parseSecret(func(m *material, v string) { m.password = v })
	b, err := readFile(path)
	if err != nil {
		return "", err
	}
	set, err := parse([][]byte{b})
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	set(m)
	return m.password, nil
}

func check(parse func([][]byte) (func(*material), error), paths ...string) error {
	p := part{paths: paths}
	contents, _, err := p.read()
	if err != nil {
		return err
	}
	if _, err = parse(contents); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(paths, " and "), err)
	}
	return nil
}

// expired reports whether our certificate is no longer valid, and since when. ended is false if it is valid, or if
// there is no certificate.
func (m *material) expired() (at time.Time, ended bool) {
	if m.cert == nil || m.cert.Leaf == nil {
		return time.Time{}, false
	}
	return m.cert.Leaf.NotAfter, time.Now().After(m.cert.Leaf.NotAfter)
}

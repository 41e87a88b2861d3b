package config

import (
	"fmt"
	"io"
	"net"
	"os"

	"sluice/reliability/origin"
	"sluice/secure"
	"sluice/secure/pgconfig"
	"sluice/secure/tokens"
	"sluice/secure/webconfig"
)

// Ops is the section ops: the ops API.
type Ops struct {
	Listen        string // the address of the API; "" for no API
	TokensFile    string // read again when it changes; "" makes the API read-only
	WebConfigFile string // has TLS and rate limits; "" for none
	// ReplaySecretFile has the keys that sign and verify records of replays through the topic; read again when it
	// changes; "" for no such replays.
	ReplaySecretFile string
	Mirror           Mirror // copies of the operations log
}

// Mirror is the part of ops about the copies of the operations log in Postgres.
type Mirror struct {
	URLFile string // file with the URL of the database; "" for no copies. Read again after a failure
	CAFile  string // file of certificate authorities
	// InsecurePlaintext allows a password without TLS.
	InsecurePlaintext bool
}

const defaultOpsListen = "127.0.0.1:8090"

// IsDefault reports whether the address is the default one. A second member on the same machine runs without the API
// then.
func (o *Ops) IsDefault() bool { return o.Listen == defaultOpsListen }

func (o *Ops) keys() []key {
	return []key{
		{"ops.listen", text(&o.Listen, opsAddress), ""},
		{"ops.tokens_file", text(&o.TokensFile, nil), ""},
		{"ops.web_config_file", text(&o.WebConfigFile, nil), ""},
		{replaySecretFile, text(&o.ReplaySecretFile, nil), ""},
		{"ops.mirror_url_file", text(&o.Mirror.URLFile, nil), ""},
		{"ops.mirror_ca_file", text(&o.Mirror.CAFile, nil), ""},
		{"ops.mirror_insecure_plaintext", boolean(&o.Mirror.InsecurePlaintext), ""},
	}
}

const replaySecretFile = "ops.replay_secret_file" //nolint:gosec // name of a key, not a key

// maxOriginKeys bounds the file of keys, in bytes.
const maxOriginKeys = 64 << 10

// ReadOriginKeys reads the file with the keys that sign and verify records of replays through the topic. Its errors
// quote no key.
func ReadOriginKeys(path string) (*origin.Keys, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	content, err := io.ReadAll(io.LimitReader(f, maxOriginKeys+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case len(content) > maxOriginKeys:
		return nil, fmt.Errorf("%s is larger than 64 KiB", path)
	}
	k, err := origin.ParseKeys(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &k, nil
}

// checkReplaySecret resolves the path of the keys for replays through the topic, and checks that the file can be used.
func (l *loader) checkReplaySecret() {
	path := &l.config.Ops.ReplaySecretFile
	if *path == "" || l.failed(replaySecretFile) {
		return
	}
	*path = l.beside(*path)
	if _, err := ReadOriginKeys(*path); err != nil && !l.missingFile(replaySecretFile, err) {
		l.report(l.at(replaySecretFile), "%v", unnamed(err))
	}
}

func opsAddress(s string) error {
	if s == "" {
		return nil
	}
	return listenAddress(s)
}

// checkMirror checks the keys for the copies of the operations log. The URL must be valid, and must not send a
// password without TLS unless mirror_insecure_plaintext is set.
func (l *loader) checkMirror() {
	const at = "ops.mirror_url_file"
	m := &l.config.Ops.Mirror
	if l.failed(at) {
		return
	}
	if m.URLFile == "" {
		for key, set := range map[string]bool{"ops.mirror_ca_file": m.CAFile != "", "ops.mirror_insecure_plaintext": m.InsecurePlaintext} {
			if set {
				l.report(l.at(key), "has no effect without ops.mirror_url_file: write the name of a file that holds postgres://user:password@host:port/database?sslmode=verify-full, or remove it")
			}
		}
		return
	}
	l.secretFile(at, &m.URLFile)
	l.authorities("ops.mirror_ca_file", &m.CAFile)
	l.checkURL("ops.mirror_", m.URLFile, m.InsecurePlaintext, func(url string, insecure bool) error {
		_, err := pgconfig.Parse(pgconfig.Options{URL: url, CAFile: m.CAFile, InsecurePlaintext: insecure})
		return err
	})
}

// checkOps checks the files of the ops API. It reports a problem if other hosts can reach the address without TLS or
// without a token.
func (l *loader) checkOps() {
	l.checkReplaySecret()
	o := &l.config.Ops
	const listen, tokensFile, webFile = "ops.listen", "ops.tokens_file", "ops.web_config_file" //nolint:gosec // names of keys, not keys
	if o.Listen == "" && !l.failed(listen) {
		l.opsIsOff(tokensFile, o.TokensFile)
		l.opsIsOff(webFile, o.WebConfigFile)
		return
	}
	withTLS := l.checkWebConfig(webFile)
	l.checkTokens(tokensFile)
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil || secure.Loopback(host) || l.failed(listen) || l.failed(tokensFile) || l.failed(webFile) {
		return
	}
	switch {
	case o.TokensFile == "":
		l.report(l.at(listen), "%s can be reached by other machines, which needs ops.tokens_file: write a file with the hashes of tokens, or listen on 127.0.0.1", o.Listen)
	case !withTLS:
		l.report(l.at(listen), "%s can be reached by other machines, and tokens would travel unprotected: write ops.web_config_file with tls_server_config, or listen on 127.0.0.1", o.Listen)
	}
}

// opsIsOff reports a problem about a file that is not used because the API is turned off.
func (l *loader) opsIsOff(at, file string) {
	if file != "" {
		l.report(l.at(at), `has no effect with listen: "": remove it`)
	}
}

// checkTokens resolves the path of the tokens and checks that the file can be used.
func (l *loader) checkTokens(at string) {
	path := &l.config.Ops.TokensFile
	if *path == "" || l.failed(at) {
		return
	}
	*path = l.beside(*path)
	if _, err := tokens.Read(*path); err != nil && !l.missingFile(at, err) {
		l.report(l.at(at), "%v", unnamed(err))
	}
}

// checkWebConfig resolves the path of the web configuration, checks the file, and reports whether it has TLS. In a
// check without secrets, a missing file counts as one with TLS.
func (l *loader) checkWebConfig(at string) (withTLS bool) {
	path := &l.config.Ops.WebConfigFile
	if *path == "" || l.failed(at) {
		return false
	}
	*path = l.beside(*path)
	c, err := webconfig.Read(*path)
	switch {
	case l.missingFile(at, err):
		return true
	case err != nil:
		l.report(l.at(at), "%v", unnamed(err))
		return false
	}
	return c.TLS != nil
}

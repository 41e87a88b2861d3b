package config

import (
	"slices"
	"strings"

	"sluice/connector/kafka/dial"
)

// TLS is the section kafka.tls.
type TLS struct {
	Enabled            bool // true if any key of the section is set, unless this key is written
	CAFile             string
	CertFile           string
	KeyFile            string
	ServerName         string
	InsecureSkipVerify bool
}

// SASL is the section kafka.sasl.
type SASL struct {
	Mechanism         string // none, plain, scram-sha-256, scram-sha-512 or oauthbearer
	Username          string
	Password          Secret
	PasswordFile      string // read for each authentication
	TokenFile         string // read for each authentication
	InsecurePlaintext bool
}

func (t *TLS) keys() []key {
	return []key{
		{"kafka.tls.enabled", boolean(&t.Enabled), ""},
		{"kafka.tls.ca_file", text(&t.CAFile, nil), ""},
		{"kafka.tls.cert_file", text(&t.CertFile, nil), ""},
		{"kafka.tls.key_file", text(&t.KeyFile, nil), ""},
		{"kafka.tls.server_name", text(&t.ServerName, nil), ""},
		{"kafka.tls.insecure_skip_verify", boolean(&t.InsecureSkipVerify), ""},
	}
}

func (s *SASL) keys() []key {
	return []key{
		{"kafka.sasl.mechanism", choice(&s.Mechanism, nil, "none", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer"), ""},
		{"kafka.sasl.username", text(&s.Username, nil), ""},
		{"kafka.sasl.password", secret(&s.Password), ""},
		{"kafka.sasl.password_file", text(&s.PasswordFile, nil), ""},
		{"kafka.sasl.token_file", text(&s.TokenFile, nil), ""},
		{"kafka.sasl.insecure_plaintext", boolean(&s.InsecurePlaintext), ""},
	}
}

// given reports whether a key without a default is set.
func (k key) given() bool {
	v := k.node().Value
	return v != "" && v != "false"
}

// checkTLS completes and checks the section kafka.tls.
func (l *loader) checkTLS() {
	const at = "kafka.tls."
	t := &l.config.Kafka.TLS
	var given []string // the keys that are set, without enabled
	for _, k := range t.keys()[1:] {
		if k.given() {
			given = append(given, strings.TrimPrefix(k.path, at))
		}
	}
	switch {
	case t.Enabled || len(given) == 0:
	case l.has(at + "enabled"):
		l.warning(l.at(at+"enabled"), "TLS is off, %s without effect", strings.Join(given, ", "))
	default:
		t.Enabled = true
		l.config.origins[at+"enabled"] = Origin{Note: "on because of " + given[0]}
	}
	if t.CAFile != "" {
		t.CAFile = l.beside(t.CAFile)
		if err := dial.CheckCA(t.CAFile); err != nil && !l.missingFile(at+"ca_file", err) {
			l.report(l.at(at+"ca_file"), "%v", err)
		}
	}
	switch {
	case t.CertFile == "" && t.KeyFile != "":
		l.report(l.at(at+"key_file"), "is given without cert_file: write both, or neither")
	case t.CertFile != "" && t.KeyFile == "":
		l.report(l.at(at+"cert_file"), "is given without key_file: write both, or neither")
	case t.CertFile != "":
		t.CertFile, t.KeyFile = l.beside(t.CertFile), l.beside(t.KeyFile)
		if err := dial.CheckPair(t.CertFile, t.KeyFile); err != nil && !l.missingFile(at+"cert_file", err) {
			l.report(l.at(at+"cert_file"), "%v", err)
		}
	}
	if t.InsecureSkipVerify && t.Enabled {
		l.warning(l.at(at+"insecure_skip_verify"), "the client accepts any certificate as the broker's: use ca_file and server_name instead")
	}
}

// checkSASL completes and checks the section kafka.sasl.
func (l *loader) checkSASL() {
	const at = "kafka.sasl."
	s := &l.config.Kafka.SASL
	if l.failedBelow(at) {
		return
	}
	if s.Mechanism == "none" {
		for _, k := range s.keys()[1:] {
			if k.given() {
				l.report(l.at(k.path), "is given without kafka.sasl.mechanism: write that too, or remove this")
				return
			}
		}
		return
	}
	bearer := s.Mechanism == "oauthbearer"
	needs := func(ok bool, name, what string) {
		if !ok {
			l.report(l.at(at+"mechanism"), "%s needs %s: write %s", s.Mechanism, name, what)
		}
	}
	idle := func(names ...string) {
		for _, k := range s.keys() {
			if k.given() && slices.Contains(names, strings.TrimPrefix(k.path, at)) {
				l.report(l.at(k.path), "has no effect with %s: remove it", s.Mechanism)
			}
		}
	}
	switch {
	case bearer:
		needs(s.TokenFile != "", "token_file", "the name of a file that holds the token; it is read for each authentication")
		idle("username", "password", "password_file")
	case s.Password != "" && s.PasswordFile != "":
		l.report(l.at(at+"password_file"), "is given together with password: remove one of them")
	default:
		needs(s.Username != "", "username", "the user's name")
		needs(s.Password != "" || s.PasswordFile != "", "a password", "password: ${VARIABLE}, or password_file")
		idle("token_file")
	}
	l.secretFile(at+"password_file", &s.PasswordFile)
	l.secretFile(at+"token_file", &s.TokenFile)
	l.checkSASLPlaintext()
}

// secretFile resolves the path of a secret file and checks that the file can be read.
func (l *loader) secretFile(at string, path *string) {
	if *path == "" {
		return
	}
	*path = l.beside(*path)
	if err := dial.CheckSecret(*path); err != nil && !l.missingFile(at, err) {
		l.report(l.at(at), "%v", unnamed(err))
	}
}

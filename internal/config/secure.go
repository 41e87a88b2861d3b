package config

import (
	"errors"
	"log/slog"
	"net/url"
	"strings"

	"sluice/connector/kafka/dial"
	"sluice/health/membership/redis"
	"sluice/secure"
	"sluice/secure/pgconfig"
)

// Secrets travel encrypted and to a verified host, to this machine, or because a key insecure_plaintext says so. These
// checks tell it before a member starts; what opens a connection refuses by the same rule, since files change.

// checkSASLPlaintext checks whether brokers get credentials without TLS.
func (l *loader) checkSASLPlaintext() {
	const key = "kafka.sasl.insecure_plaintext"
	k := &l.config.Kafka
	if k.TLS.Enabled {
		return
	}
	for _, broker := range k.Brokers {
		if secure.LoopbackAddress(broker) {
			continue
		}
		if !k.SASL.InsecurePlaintext {
			l.report(l.at("kafka.sasl.mechanism"), "%s without TLS lets everyone on the way to %s read or guess the secret: set kafka.tls.enabled: true, or %s: true to accept it",
				k.SASL.Mechanism, broker, key)
			return
		}
		l.warning(l.at(key), "%s without TLS: everyone on the way to %s can read or guess the secret", k.SASL.Mechanism, broker)
		return
	}
}

// checkEndpoint checks whether S3 gets signatures, session tokens and records without TLS.
func (l *loader) checkEndpoint() {
	const key = "storage.s3.insecure_plaintext"
	s3 := &l.config.Storage.S3
	l.authorities("storage.s3.ca_file", &s3.CAFile)
	u, err := url.Parse(s3.Endpoint)
	if err != nil || u.Scheme != "http" || !strings.HasPrefix(l.config.Storage.URL, "s3:") || secure.Loopback(u.Hostname()) || l.failed("storage.s3.endpoint") {
		return
	}
	if s3.InsecurePlaintext {
		l.warning(l.at(key), "%s has no TLS: everyone on the way can read what goes to the bucket, and the session token of temporary keys", s3.Endpoint)
		return
	}
	l.report(l.at("storage.s3.endpoint"), "%s has no TLS: write https://, and ca_file if the authority is your own, or %s: true to let everyone on the way read along", s3.Endpoint, key)
}

// checkMembersURL checks what the URL of the store of registrations shows to others.
func (l *loader) checkMembersURL() {
	m := &l.config.Members
	l.authorities("members.ca_file", &m.CAFile)
	switch m.Store {
	case "redis":
		l.checkURL("members.", m.URLFile, m.InsecurePlaintext, func(url string, insecure bool) error {
			return redis.Options{URL: url, CAFile: m.CAFile, InsecurePlaintext: insecure}.Check()
		})
	case "postgres":
		l.checkURL("members.", m.URLFile, m.InsecurePlaintext, func(url string, insecure bool) error {
			_, err := pgconfig.Parse(pgconfig.Options{URL: url, CAFile: m.CAFile, InsecurePlaintext: insecure})
			return err
		})
	}
}

// checkFingerprintsURL checks the same of the database of fingerprints.
func (l *loader) checkFingerprintsURL() {
	f := &l.config.Fingerprints
	l.authorities("fingerprints.ca_file", &f.CAFile)
	if f.Store == "postgres" {
		l.checkURL("fingerprints.", f.URLFile, f.InsecurePlaintext, func(url string, insecure bool) error {
			_, err := pgconfig.Parse(pgconfig.Options{URL: url, CAFile: f.CAFile, InsecurePlaintext: insecure})
			return err
		})
	}
}

// checkURL reads a URL from its file and checks it without and, if that is allowed, with an exception for plaintext.
func (l *loader) checkURL(section, file string, insecure bool, check func(url string, insecure bool) error) {
	at, key := section+"url_file", section+"insecure_plaintext"
	if l.failed(at) || l.failed(section+"ca_file") {
		return
	}
	text, err := dial.ReadSecret(file)
	if err != nil {
		return // secretFile has reported it
	}
	err = check(text, false)
	switch {
	case err == nil:
	case !errors.Is(err, secure.ErrPlaintext):
		l.report(l.at(at), "%v", err)
	case insecure:
		l.warning(l.at(key), "%v", err)
	default:
		l.report(l.at(at), "%v; %s: true accepts it", err, key)
	}
}

// authorities makes the path of a file of authorities one seen from here, and looks whether it can be used.
func (l *loader) authorities(at string, path *string) {
	if *path == "" || l.failed(at) {
		return
	}
	*path = l.beside(*path)
	if _, err := secure.Roots(*path); err != nil && !l.missingFile(at, err) {
		l.report(l.at(at), "%v", err)
	}
}

// WarnPlaintext logs the exceptions that are in force, at the start of a member.
func (c *Config) WarnPlaintext(logger *slog.Logger) {
	for _, k := range []struct {
		on   bool
		name string
	}{
		{c.Storage.S3.InsecurePlaintext, "storage.s3"},
		{c.Fingerprints.InsecurePlaintext, "fingerprints"},
		{c.Members.InsecurePlaintext, "members"},
	} {
		if k.on {
			logger.Warn("insecure_plaintext: anyone on the network path can read the traffic", "key", k.name+".insecure_plaintext")
		}
	}
}

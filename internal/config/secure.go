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

// Members send secrets only over TLS to a host that was verified, over loopback, or if a key insecure_plaintext allows
// otherwise. The checks in this file report settings that would break this rule before a member starts. The code that
// opens connections checks it again, because files can change.

// checkSASLPlaintext reports a problem if brokers would get credentials without TLS.
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
			l.report(l.at("kafka.sasl.mechanism"), "%s without TLS lets anyone on the network path to %s read or guess the secret: set kafka.tls.enabled: true, or %s: true to accept it",
				k.SASL.Mechanism, broker, key)
			return
		}
		l.warning(l.at(key), "%s without TLS: anyone on the network path to %s can read or guess the secret", k.SASL.Mechanism, broker)
		return
	}
}

// checkEndpoint reports a problem if an S3 endpoint would get signatures, session tokens and records without TLS.
func (l *loader) checkEndpoint() {
	const key = "storage.s3.insecure_plaintext"
	s3 := &l.config.Storage.S3
	l.authorities("storage.s3.ca_file", &s3.CAFile)
	u, err := url.Parse(s3.Endpoint)
	if err != nil || u.Scheme != "http" || !strings.HasPrefix(l.config.Storage.URL, "s3:") || secure.Loopback(u.Hostname()) || l.failed("storage.s3.endpoint") {
		return
	}
	if s3.InsecurePlaintext {
		l.warning(l.at(key), "%s has no TLS: anyone on the network path can read the traffic to the bucket, and the session token of temporary keys", s3.Endpoint)
		return
	}
	l.report(l.at("storage.s3.endpoint"), "%s has no TLS: write https://, and ca_file if the authority is your own, or %s: true to let anyone on the network path read along", s3.Endpoint, key)
}

// checkMembersURL checks the URL of the store of registrations, also whether it sends a password without TLS.
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

// checkFingerprintsURL checks the URL of the fingerprint store, also whether it sends a password without TLS.
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

// checkURL reads a URL from its file and calls check. If plaintext is the only problem and insecure is set, the problem
// becomes a warning.
func (l *loader) checkURL(section, file string, insecure bool, check func(url string, insecure bool) error) {
	at, key := section+"url_file", section+"insecure_plaintext"
	if l.failed(at) || l.failed(section+"ca_file") {
		return
	}
	text, err := dial.ReadSecret(file)
	if err != nil {
		return // secretFile has reported this problem
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

// authorities resolves the path of a file of certificate authorities and checks that the file can be used.
func (l *loader) authorities(at string, path *string) {
	if *path == "" || l.failed(at) {
		return
	}
	*path = l.beside(*path)
	if _, err := secure.Roots(*path); err != nil && !l.missingFile(at, err) {
		l.report(l.at(at), "%v", err)
	}
}

// WarnPlaintext logs the keys insecure_plaintext that are set. A member calls it at its start.
func (c *Config) WarnPlaintext(logger *slog.Logger) {
	for _, k := range []struct {
		on  bool
		key string
	}{
		{c.Storage.S3.InsecurePlaintext, "storage.s3.insecure_plaintext"},
		{c.Fingerprints.InsecurePlaintext, "fingerprints.insecure_plaintext"},
		{c.Members.InsecurePlaintext, "members.insecure_plaintext"},
		{c.Ops.Mirror.InsecurePlaintext, "ops.mirror_insecure_plaintext"},
	} {
		if k.on {
			logger.Warn("insecure_plaintext: anyone on the network path can read the traffic", "key", k.key)
		}
	}
}

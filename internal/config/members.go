package config

import (
	"fmt"
	"time"

	"sluice/health/membership"
)

// Members is the section members: the store in which members register, so that operators see missing ones.
type Members struct {
	Store   string // "none", "redis" or "postgres"
	URLFile string // file with the URL of the store; read at the start
	CAFile  string // file of certificate authorities; read at the start
	// Address is where other machines reach this member's /health: host:port, "auto", or "none".
	Address string
	// InsecurePlaintext allows a password without TLS.
	InsecurePlaintext bool

	Beat  time.Duration
	TTL   time.Duration
	Sweep time.Duration
}

func defaultMembers() Members {
	return Members{Store: "none", Address: AutoAddress, Beat: 10 * time.Second, TTL: 30 * time.Second, Sweep: time.Minute}
}

// The values of members.address that are not an address.
const (
	AutoAddress = "auto" // found by the member
	NoAddress   = "none"
)

// memberAddress checks members.address.
func memberAddress(s string) error {
	if s == AutoAddress || s == NoAddress {
		return nil
	}
	if err := membership.CheckAddress("http://" + s); err != nil {
		return fmt.Errorf("%q is not an address at which other machines reach this member: write host:port, such as 10.1.2.3:8080, or auto, or none", s)
	}
	return nil
}

func (m *Members) keys() []key {
	return []key{
		{"members.store", choice(&m.Store, nil, "none", "redis", "postgres"), ""},
		{"members.url_file", text(&m.URLFile, nil), ""},
		{"members.ca_file", text(&m.CAFile, nil), ""},
		{"members.insecure_plaintext", boolean(&m.InsecurePlaintext), ""},
		{"members.address", text(&m.Address, memberAddress), ""},
		{"members.beat", duration(&m.Beat, time.Second, 20*time.Second), ""},
		{"members.ttl", duration(&m.TTL, 10*time.Second, 10*time.Minute), ""},
		{"members.sweep", duration(&m.Sweep, 10*time.Second, time.Hour), ""},
	}
}

// memberURLs has examples of the stores' URLs.
var memberURLs = map[string]string{
	"redis":    "rediss://user:password@host:port/database",
	"postgres": "postgres://user:password@host:port/database?sslmode=verify-full",
}

// checkMembers checks the store of registrations.
func (l *loader) checkMembers() {
	m, at := &l.config.Members, "members.url_file"
	switch {
	case l.failed(at) || l.failed("members.store"):
	case m.Store != "none" && m.URLFile == "":
		l.report(l.at("members.store"), "%s needs members.url_file: write the name of a file that holds %s", m.Store, memberURLs[m.Store])
	case m.Store == "none" && m.URLFile != "":
		l.report(l.at(at), "has no effect with store: none: write store: redis or store: postgres, or remove it")
	default:
		l.secretFile(at, &m.URLFile)
		l.checkMembersURL()
	}
	if m.Address != AutoAddress && m.Address != NoAddress && !l.config.Health.Enabled && !l.failed("members.address") {
		l.report(l.at("members.address"), "has no effect with health.enabled: false, because other machines would read /health there: remove it")
	}
	if m.TTL > 2*m.Beat || l.failed("members.ttl") || l.failed("members.beat") {
		return
	}
	at = "members.ttl"
	if !l.has(at) {
		at = "members.beat"
	}
	l.report(l.at(at), "members.ttl %s must be more than twice members.beat %s, or one lost heartbeat ends a registration: change one of them",
		FormatDuration(m.TTL), FormatDuration(m.Beat))
}

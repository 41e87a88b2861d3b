package connector

import (
	"crypto/subtle"
	"slices"
)

// ClaimsHealthCheck reports whether the headers mark a record as a health check. If the header repeats, the last
// one counts, as in Kafka's lastHeader.
func ClaimsHealthCheck(headers []Header) bool {
	value, _ := LastHeader(headers, HealthHeader)
	return string(value) == HealthValue
}

// Proves reports whether the headers carry the secret. It compares in constant time, so that its duration reveals
// nothing about the secret.
func (h HealthRecords) Proves(headers []Header) bool {
	if h.Secret == nil {
		return true
	}
	secret := h.Secret()
	value, _ := LastHeader(headers, HealthSecretHeader)
	return subtle.ConstantTimeCompare(value, []byte(secret)) == 1 && secret != ""
}

// LastHeader returns the value of the last header with this name, which is the one that counts; false if there is none.
// The value of a header may be nil.
func LastHeader(headers []Header, name string) (value []byte, ok bool) {
	for _, h := range slices.Backward(headers) {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// The headers of a health-check record. A monitor sends such a record to test whether the topic accepts records; it
// carries no data.
const (
	// HealthHeader marks a record as a health check if its value is exactly [HealthValue].
	HealthHeader = "HEALTHCHECK"
	// HealthValue is the value of [HealthHeader] in a health-check record.
	HealthValue = "TRUE"
	// HealthSecretHeader carries the secret, for topics that require one.
	HealthSecretHeader = "HEALTHCHECK-SECRET"
)

// HealthRecords is the configuration of a topic's health-check records.
type HealthRecords struct {
	// Drop leaves health-check records out of the table; the [Range] of the commit counts them. If Drop is false, they
	// are ordinary records.
	Drop bool
	// Secret returns the secret that a health-check record must carry to be dropped; a record without the secret is an
	// ordinary record. Every lane calls it, once per record that claims to be a health check, so it must not block. If
	// Secret is nil, no secret is required; if it returns "", no record matches.
	Secret func() string
}

package connector

import (
	"crypto/subtle"
	"slices"
)

// ClaimsHealthCheck tells whether a record says of itself that it is a health check. Of headers that repeat the last
// one counts, as Kafka's lastHeader has it.
func ClaimsHealthCheck(headers []Header) bool {
	return string(lastHeader(headers, HealthHeader)) == HealthValue
}

// Proves tells whether the record carries the secret. The time that it takes says nothing about how much of it is right.
func (h HealthRecords) Proves(headers []Header) bool {
	if h.Secret == nil {
		return true
	}
	secret := h.Secret()
	return subtle.ConstantTimeCompare(lastHeader(headers, HealthSecretHeader), []byte(secret)) == 1 && secret != ""
}

// lastHeader returns the value of the last header of a name, nil if there is none.
func lastHeader(headers []Header, name string) []byte {
	for _, h := range slices.Backward(headers) {
		if h.Key == name {
			return h.Value
		}
	}
	return nil
}

// The headers of a health-check record: somebody sent it to see whether the topic takes records. It is no data.
const (
	// HealthHeader with the value [HealthValue], exactly, makes a record one.
	HealthHeader = "HEALTHCHECK"
	HealthValue  = "TRUE"
	// HealthSecretHeader carries the secret, of topics that ask for one.
	HealthSecretHeader = "HEALTHCHECK-SECRET"
)

// HealthRecords says what becomes of the health-check records of a topic.
type HealthRecords struct {
	// Drop leaves them out of the table, counted and explained by [Range]. Without it they are ordinary records.
	Drop bool
	// Secret returns what a record must carry to be dropped; one that does not is ordinary. It is asked for each record
	// that claims to be a health check, by any goroutine, and answers at once. nil asks for none; "" is what none has.
	Secret func() string
}

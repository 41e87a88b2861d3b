// Package classify decides what an error means for the operation that met it.
//
// It knows errors by type and by behaviour, never by their text: a text can quote a record or be in any language.
// Adapters mark errors with [Mark] when the error codes of their protocols say more. All other errors are judged by
// their type and by the methods they implement. classtest/classes.txt lists every class. The adapters' tests compare
// their code with it, and docs/guarantees.md shows it.
package classify

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// Class says how the caller reacts to an error. The zero Class, [Transient], is the safe default: retry.
type Class uint8

const (
	// Transient is a failure of a dependency that is expected to end: a timeout, a reset, 5xx, throttling, 409, a
	// leader change, a full disk, and every unknown error. The guard retries it without limit.
	Transient Class = iota
	// Poison is a record that can never become a row: it cannot be decoded, has a wrong type, lacks a required field,
	// is out of range, or is too large or too deep. It never counts towards opening a circuit breaker.
	Poison
	// Fatal is an error that needs a person: 401, 403, a missing bucket, an unsupported table, a position outside the
	// log. The claims are held and checked again each minute; nothing is skipped and no process exits.
	Fatal
	// Fenced means that another member or an operator has moved the position, or that another member owns it now. The
	// work is dropped, and the claim resumes at the position in the table.
	Fenced
	// Canceled means that the caller's context was canceled. The work is drained or dropped.
	Canceled
)

var names = [...]string{"transient", "poison", "fatal", "fenced", "canceled"}

// String returns the name that logs and metrics use.
func (c Class) String() string {
	if int(c) >= len(names) {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return names[c]
}

// marked is an error together with the class that an adapter gave it.
type marked struct {
	error
	class Class
}

func (m marked) Unwrap() error { return m.error }

// Mark gives err the class c, which then takes precedence over every other rule. A nil error stays nil.
func Mark(err error, c Class) error {
	if err == nil {
		return nil
	}
	return marked{err, c}
}

// Of returns the class of err: that of the outermost mark if there is one, otherwise the one that its type and methods
// imply. An error that no rule matches is Transient. err must not be nil.
func Of(err error) Class {
	c, _ := Known(err)
	return c
}

// Known returns the class of err, as [Of] does, and reports whether a rule matched. If none did, the class is Transient
// and the caller should count the error as unknown.
func Known(err error) (class Class, known bool) {
	var (
		m      marked
		status interface{ HTTPStatusCode() int }
		timed  interface{ Timeout() bool }
		passes interface{ Temporary() bool }
		name   *net.DNSError
	)
	switch {
	case errors.As(err, &m):
		return m.class, true
	case errors.Is(err, context.Canceled):
		return Canceled, true
	case errors.Is(err, context.DeadlineExceeded):
		return Transient, true
	case errors.As(err, &status):
		return OfStatus(status.HTTPStatusCode())
	case errors.As(err, &name):
		// A host name that does not exist may exist later: when a pod starts, or when a DNS record propagates.
		return Transient, true
	case errors.As(err, &timed) && timed.Timeout(), errors.As(err, &passes) && passes.Temporary():
		return Transient, true
	}
	if class, known := ofTLS(err); known {
		return class, true
	}
	return ofSyscall(err)
}

// OfStatus returns the class of an HTTP status code of a failed request. If no rule matches, known is false and the
// class is Transient. The caller decides which codes are no failure for its request, such as 404 and 412.
func OfStatus(code int) (class Class, known bool) {
	switch code {
	case 401, 403, 407, 501, 505:
		return Fatal, true
	case 408, 409, 421, 423, 425, 429:
		return Transient, true
	}
	return Transient, code >= 500 && code <= 599
}

// Package classify decides what an error means for the work that met it.
//
// It knows errors by type and by behaviour, never by their text: a text can quote a record, or be in any language.
// Adapters mark what they know better with [Mark], by the codes of their protocols; everything else is judged by its type
// and by the methods that it offers. The table of all classes is classtest/classes.txt: the adapters' tests hold them
// against it, and docs/guarantees.md shows it.
package classify

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// A Class says what to do next. The zero Class is the safe one: try again.
type Class uint8

const (
	// Transient is a failure of a dependency that passes: timeouts, resets, 5xx, throttling, 409, leader moves, a full
	// disk, and everything unknown. The guard tries again, without limit.
	Transient Class = iota
	// Poison is a record that can never become a row: not decodable, wrong type, required field missing, out of range,
	// too large or too deep. It never counts towards a breaker.
	Poison
	// Fatal needs a person: 401, 403, a missing bucket, an unsupported table, a position outside the log. It holds and
	// is checked again each minute; nothing is skipped and no process exits.
	Fatal
	// Fenced means that another writer moved the position or owns it now. The work is dropped and resumed from the table.
	Fenced
	// Canceled means that we were asked to stop. The work is drained or dropped.
	Canceled
)

var names = [...]string{"transient", "poison", "fatal", "fenced", "canceled"}

// String returns the name that logs and metrics show.
func (c Class) String() string {
	if int(c) >= len(names) {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return names[c]
}

type marked struct {
	error
	class Class
}

func (m marked) Unwrap() error { return m.error }

// Mark gives err a class that the caller is sure of. A nil error stays nil.
func Mark(err error, c Class) error {
	if err == nil {
		return nil
	}
	return marked{err, c}
}

// Of returns the class of err: the outermost mark if there is one, else what its behaviour suggests.
// It must not be called with nil.
func Of(err error) Class {
	c, _ := Known(err)
	return c
}

// Known is [Of] and tells whether the class was known; an unknown error is Transient and should be counted as unknown.
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
		return Transient, true // a name that is not there may come: of a pod that starts, of a record that propagates
	case errors.As(err, &timed) && timed.Timeout(), errors.As(err, &passes) && passes.Temporary():
		return Transient, true
	}
	if class, known := ofTLS(err); known {
		return class, true
	}
	return ofSyscall(err)
}

// OfStatus is the class of an HTTP status code that means failure. What the request was decides what other codes mean:
// 404 and 412 are answers to some.
func OfStatus(code int) (class Class, known bool) {
	switch code {
	case 401, 403, 407, 501, 505:
		return Fatal, true
	case 408, 409, 421, 423, 425, 429:
		return Transient, true
	}
	return Transient, code >= 500 && code <= 599
}

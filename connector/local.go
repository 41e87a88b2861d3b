package connector

import (
	"errors"

	"sluice/classify"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
)

// LocalError is a failure of this process while it decodes or encodes rows. Its cause is unknown: nothing shows that a
// record or a dependency is at fault. A panic of a decoder or an encoder becomes one. It has no class of its own:
// isolate.go in package commit searches for the record at fault.
type LocalError struct {
	Doing string // the step that failed, "decode" or "encode"
	Err   error  // the cause; its text contains no bytes of a record
}

// Error returns the step and the cause.
func (e *LocalError) Error() string { return e.Doing + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LocalError) Unwrap() error { return e.Err }

// Local wraps err in a [LocalError]. It returns err unchanged if it is a LocalError or a [hold.Error], or if its
// class is Poison, Fenced or Canceled. nil stays nil.
func Local(doing string, err error) error {
	if err == nil || errors.As(err, new(*LocalError)) || errors.As(err, new(*hold.Error)) {
		return err
	}
	switch classify.Of(err) {
	case classify.Poison, classify.Fenced, classify.Canceled:
		return err
	case classify.Transient, classify.Fatal:
	}
	return &LocalError{doing, err}
}

// Recovered makes a [LocalError] of the value that recover returned; for nil it returns nil. Call it in the deferred
// function itself, because the error keeps that function's stack. The text contains none of the data that caused the
// panic: see [panics.Error].
func Recovered(doing string, v any) error {
	if v == nil {
		return nil
	}
	return &LocalError{doing, panics.Of(v)}
}

// IsLocal reports whether err contains a [LocalError] that is not yet traced to a bad record (class Poison).
func IsLocal(err error) bool {
	return err != nil && errors.As(err, new(*LocalError)) && classify.Of(err) != classify.Poison
}

package connector

import (
	"errors"

	"sluice/classify"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
)

// LocalError is a failure of our own work on rows for a reason that nobody knows: neither a bad record nor a dependency. A
// decoder or an encoder that panics is one. It has no class: what is found about it decides. See isolate.go in package commit.
type LocalError struct {
	Doing string // "decode" or "encode"
	Err   error  // never with bytes of a record
}

// Error says what failed.
func (e *LocalError) Error() string { return e.Doing + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LocalError) Unwrap() error { return e.Err }

// Local makes an error of our own work a LocalError, unless it is one, or is known to be anything else: Poison, Fenced,
// Canceled, a [hold.Error]. nil stays nil.
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

// Recovered makes what recover returned a LocalError, nil if it returned nil. The deferred function that recovered must
// call it. The error quotes nothing of the data that caused the panic: see [panics.Error].
func Recovered(doing string, v any) error {
	if v == nil {
		return nil
	}
	return &LocalError{doing, panics.Of(v)}
}

// IsLocal reports whether an error is a failure of our own work that nobody has explained yet.
func IsLocal(err error) bool {
	return err != nil && errors.As(err, new(*LocalError)) && classify.Of(err) != classify.Poison
}

package connector

import (
	"errors"

	"sluice/classify"
	"sluice/reliability/deadletter"
)

// Refusals say which records of a topic cannot become rows whatever is in their values.
type Refusals struct {
	// NullKeys refuses records whose key is null, tombstones included.
	NullKeys bool
	// Tombstones refuses records whose value is null. Else they are passed over and counted.
	Tombstones bool
}

// Of says why a record is refused, nil if it is not. The error is Poison, a [RefusedError].
func (f Refusals) Of(r *Record) error {
	switch {
	case f.NullKeys && r.Key == nil:
		return refuse(deadletter.NullKey, "the key is null, and keys are required")
	case f.Tombstones && r.Value == nil:
		return refuse(deadletter.Tombstone, "the value is null, and tombstones are refused")
	}
	return nil
}

// RefusedError says why a record cannot become a row where it is not its format that is wrong. Its class is Poison.
type RefusedError struct {
	Reason deadletter.Reason
	Detail string // for a person; never bytes of the record
	Err    error  // the cause, or nil; never with bytes of the record
}

func refuse(reason deadletter.Reason, detail string) error {
	return classify.Mark(&RefusedError{Reason: reason, Detail: detail}, classify.Poison)
}

// Error returns the code, the detail and the cause.
func (e *RefusedError) Error() string {
	s := string(e.Reason) + ": " + e.Detail
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// Code returns the reason, for letters and metrics.
func (e *RefusedError) Code() string { return string(e.Reason) }

// CodeOf returns the reason code that an error carries, [deadletter.Unspecified] if it names none. Decoders tell theirs
// by a method Code() string; their codes are a closed list.
func CodeOf(err error) deadletter.Reason {
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return deadletter.Reason(coded.Code())
	}
	return deadletter.Unspecified
}

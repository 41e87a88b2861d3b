package connector

import (
	"errors"

	"sluice/classify"
	"sluice/reliability/deadletter"
)

// Refusals are the rules of a topic that keep records from becoming rows regardless of their format.
type Refusals struct {
	// NullKeys refuses records whose key is null, tombstones included.
	NullKeys   bool
	Tombstones Tombstones
}

// Tombstones says what becomes of a tombstone, a record whose value is null.
type Tombstones uint8

// The policies for tombstones.
const (
	TombstonesSkipped Tombstones = iota // it is counted, and becomes no row
	TombstonesRefused                   // it is a bad record
	TombstoneRows                       // the decoder makes a row of it
)

// Of returns why the topic refuses the record, nil if it does not. The error is a [RefusedError] of class Poison.
func (f Refusals) Of(r *Record) error {
	switch {
	case f.NullKeys && r.Key == nil:
		return refuse(deadletter.NullKey, "the key is null, and keys are required")
	case f.Tombstones == TombstonesRefused && r.Value == nil:
		return refuse(deadletter.Tombstone, "the value is null, and tombstones are refused")
	}
	return nil
}

// LeaveOut reports whether no row is made of the record because it is a tombstone. That includes the tombstones that Of
// refuses, so call Of first.
func (f Refusals) LeaveOut(r *Record) bool { return r.Value == nil && f.Tombstones != TombstoneRows }

// RefusedError says why a record cannot become a row although its format is right. Its class is Poison.
type RefusedError struct {
	Reason deadletter.Reason
	Detail string // a text for people, without bytes of the record
	Err    error  // the cause, or nil; its text has no bytes of the record
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

// Code returns the reason, for dead letters and metrics.
func (e *RefusedError) Code() string { return string(e.Reason) }

// CodeOf returns the reason code of an error, [deadletter.Unspecified] if it has none. Decoders provide theirs by a
// method Code() string, with a closed list of codes.
func CodeOf(err error) deadletter.Reason {
	var coded interface{ Code() string }
	if errors.As(err, &coded) {
		return deadletter.Reason(coded.Code())
	}
	return deadletter.Unspecified
}

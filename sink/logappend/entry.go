// Package logappend appends the next entry of a log in an object store: a conditional put that exactly one writer wins, and
// whose outcome each writer learns. The log of a table and the operations log use it.
//
// The outcome of a put is committed, conflict or unknown. Unknown (a timeout, a 5xx, a reset, and "exists", which may be an earlier put
// of this writer) is resolved by reading the entry back. While there is none, the writer puts the same bytes under the same name
// again. A writer that tried the next name before that could have its entry in the log twice.
package logappend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/sink/delta/objstore"
)

const (
	// maxAge bounds the time since the previous entry was last seen when the next one is put. Cleaning up deletes only older
	// entries, so a name that is absent within this time has never existed.
	maxAge = 60 * time.Second
	// TryTimeout bounds one request. Entries are small: a longer request will get no response.
	TryTimeout = 20 * time.Second
)

// Recent reports whether at is less than a minute before now. Both clocks must agree: the monotonic clock stops while a machine
// sleeps, the wall clock may be set back.
func Recent(at, now time.Time) bool {
	mono, wall := now.Sub(at), now.Round(0).Sub(at.Round(0))
	return mono < maxAge && wall < maxAge && wall > -time.Second
}

// ErrPreviousGone is in the chain of an error of [Entry.CheckPrevious] if the previous entry does not exist any more. The log was
// cleaned up, so an absent name may have existed.
var ErrPreviousGone = errors.New("the previous entry of the log is gone")

// errCheckStale says that the previous entry was last seen more than maxAge before the request would leave.
var errCheckStale = errors.New("the previous entry of the log was last seen more than a minute ago")

// Entry is one proposal for the next entry of a log. Its bytes never change; the same content under another name is another
// Entry. For one goroutine.
type Entry struct {
	Store objstore.Store // without retries of its own
	Key   string
	Body  []byte
	// PreviousSeen is the last time at which the entry before Key is known to have existed.
	PreviousSeen time.Time
	// CheckPrevious makes sure that the entry before Key still exists. If not, its error has [ErrPreviousGone] in the chain and a class
	// that ends the append. Other errors are retried.
	CheckPrevious func(context.Context) error
	// IsOurs reads the object at Key and reports whether it is this entry. objstore.ErrNotFound says that there is none. An object
	// that cannot be read decides nothing: return an error.
	IsOurs func(context.Context) (bool, error)
	// OnUnknown gets the cause each time that the outcome is still unknown. It may be nil.
	OnUnknown func(ctx context.Context, cause error)

	sent, unknownSince time.Time
}

// Sent returns when the first put left, the zero time before that.
func (e *Entry) Sent() time.Time { return e.sent }

// UnknownSince returns when the first put left whose effect was unknown, the zero time if there was none. It keeps its value once the
// outcome is known.
func (e *Entry) UnknownSince() time.Time { return e.unknownSince }

// Try puts the entry once and finds out whether it is the next one of the log (true) or another writer's is (false). A Transient
// error says that this is not known yet, or that there is no entry yet: call Try again on the same Entry, behind a guard. Other errors
// end the append: the store refused before anything left, or ErrPreviousGone.
func (e *Entry) Try(ctx context.Context) (committed bool, err error) {
	put := errCheckStale
	for tries := 0; tries < 3 && errors.Is(put, errCheckStale); tries++ { // stale again only if we sleep between check and put
		if err := e.check(ctx); err != nil {
			return false, e.retryable(err)
		}
		put = e.put(ctx)
	}
	switch {
	case put == nil:
		return true, nil
	case errors.Is(put, objstore.ErrNotSent) && e.unknownSince.IsZero():
		return false, classify.Mark(put, classify.Transient) // no put has left, and none is in flight
	case errors.Is(put, objstore.ErrRefused) && e.unknownSince.IsZero():
		return false, put // certainly without effect
	}

	// Now or earlier a put left whose effect is unknown. That includes "exists": it may be an earlier put of this entry, or this
	// one repeated by a proxy. If there is an object at Key, it decides.
	if e.unknownSince.IsZero() {
		e.unknownSince = time.Now()
	}
	if !errors.Is(put, objstore.ErrExists) {
		e.reportUnknown(ctx, put)
	}
	mine, err := e.isOurs(ctx)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		// An absent object proves nothing: a put may still be in flight. Only the same put again is safe.
		e.reportUnknown(ctx, put)
		return false, e.retryable(put)
	case err != nil:
		e.reportUnknown(ctx, err)
		return false, e.retryable(err)
	case mine:
		return true, nil
	}
	return false, nil
}

// put sends the entry once, unless PreviousSeen has become too old when the request is about to leave.
func (e *Entry) put(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TryTimeout)
	defer cancel()
	now := time.Now()
	err := e.Store.Put(objstore.WithLastCheck(ctx, e.lastCheck), e.Key, bytes.NewReader(e.Body), objstore.IfAbsent)
	if e.sent.IsZero() && !errors.Is(err, objstore.ErrNotSent) {
		e.sent = now
	}
	return err
}

// lastCheck runs when the request is signed and about to leave. If the process sleeps after it, the store refuses the signature as too
// old.
func (e *Entry) lastCheck() error {
	if Recent(e.PreviousSeen, time.Now()) {
		return nil
	}
	return errCheckStale
}

// check makes sure that the previous entry still exists, unless it was seen within maxAge.
func (e *Entry) check(ctx context.Context) error {
	now := time.Now()
	if Recent(e.PreviousSeen, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, TryTimeout)
	defer cancel()
	if err := e.CheckPrevious(ctx); err != nil {
		return err
	}
	e.PreviousSeen = now
	return nil
}

func (e *Entry) isOurs(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, TryTimeout)
	defer cancel()
	return e.IsOurs(ctx)
}

func (e *Entry) reportUnknown(ctx context.Context, cause error) {
	if e.OnUnknown != nil {
		e.OnUnknown(ctx, cause)
	}
}

// retryable marks an error as Transient while the outcome of a put is unknown: the search for it must go on. Otherwise it returns the
// error as it is.
func (e *Entry) retryable(err error) error {
	if e.unknownSince.IsZero() || errors.Is(err, ErrPreviousGone) {
		return err
	}
	return classify.Mark(Text(err), classify.Transient)
}

// Text returns an error with the same text and nothing else: no class, no wrapped error. The refusal of a later request says nothing
// about an earlier put, and a hold inside a fence is no hold.
func Text(err error) error { return textError{err} }

type textError struct{ err error }

func (e textError) Error() string { return e.err.Error() }

// PreviousGone returns an [ErrPreviousGone] with a class and a text that says which entry is missing.
func PreviousGone(class classify.Class, format string, args ...any) error {
	return classify.Mark(fmt.Errorf("%w: %s", ErrPreviousGone, fmt.Sprintf(format, args...)), class)
}

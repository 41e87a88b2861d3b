// Package logappend appends one object to a log with conditional puts. Exactly one writer gets each name, and every
// writer learns whether the object under that name is its own. The logs of tables and the operations log are written
// this way.
//
// A put ends as committed (the object is ours), as conflict (another writer's object has the name), or as unknown.
// Unknown covers a timeout, a 5xx, a reset, and "exists", which may be our own earlier put. The writer resolves it by
// reading the object back. While the name is still absent, it puts the same bytes under the same name again: a writer
// that moved on to the next name too early could enter the log twice.
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
	// maxAge is how old the last check of the previous object may be when a put is sent. Log cleanup removes the oldest
	// objects first, and none that is younger than maxAge. So if the previous object existed within maxAge and the name
	// is absent, the name was never used.
	maxAge = 60 * time.Second
	// TryTimeout bounds one request. The objects are small, so a slower request is given up.
	TryTimeout = 20 * time.Second
)

// Recent reports whether at lies less than a minute before now, by the monotonic clock and by the wall clock. Neither
// is enough: the monotonic clock stops while a machine sleeps, and the wall clock may be set back.
func Recent(at, now time.Time) bool {
	mono, wall := now.Sub(at), now.Round(0).Sub(at.Round(0))
	return mono < maxAge && wall < maxAge && wall > -time.Second
}

// ErrPreviousGone is for [Entry.CheckPrevious]: the object before the key no longer exists. An absent key may then
// have existed, so the put would be unsafe.
var ErrPreviousGone = errors.New("the previous log entry is gone")

// errCheckStale means that the request was not sent because the last check of the previous object was too old.
var errCheckStale = errors.New("the last check of the log is older than a minute")

// Entry is one object to append as the next of a log. Its bytes never change; the same operation under another key is
// another Entry. It is for one goroutine.
type Entry struct {
	Store objstore.Store // must do each request once, without retries
	Key   string
	Body  []byte
	// PreviousSeen is the time at which the object before Key was last known to exist.
	PreviousSeen time.Time
	// CheckPrevious checks again that the object before Key exists. If it does not, the error wraps [ErrPreviousGone]
	// with a class that ends the append ([PreviousGone] makes one). Any other error is retried.
	CheckPrevious func(context.Context) error
	// IsOurs reads the object at Key and reports whether it is this Entry. It returns objstore.ErrNotFound if the key
	// is absent. An object that cannot be read proves nothing, so it is an error, too.
	IsOurs func(context.Context) (bool, error)
	// OnUnknown, unless nil, is called with the cause each time the outcome remains unknown.
	OnUnknown func(ctx context.Context, cause error)

	sent, unknownSince time.Time
}

// Sent returns the time of the first put, zero before it.
func (e *Entry) Sent() time.Time { return e.sent }

// UnknownSince returns since when the outcome of a put has been unknown, zero if it never was. A later success
// does not reset it; after an error of Try it means that the outcome is still unknown.
func (e *Entry) UnknownSince() time.Time { return e.unknownSince }

// Try puts the object once and reports whether it is committed; false without an error is a conflict, which is final.
// A Transient error means that the outcome is unknown, or that nothing was sent: call Try again with the same Entry,
// behind a guard. Any other error ends the append: [ErrPreviousGone], or a refusal while no put can have taken effect.
func (e *Entry) Try(ctx context.Context) (committed bool, err error) {
	put := errCheckStale
	for tries := 0; tries < 3 && errors.Is(put, errCheckStale); tries++ { // a repeated stale check means that the process slept between check and put
		if err := e.check(ctx); err != nil {
			return false, e.retryable(err)
		}
		put = e.put(ctx)
	}
	switch {
	case put == nil:
		return true, nil
	case errors.Is(put, objstore.ErrNotSent) && e.unknownSince.IsZero():
		return false, classify.Mark(put, classify.Transient) // no request was sent, and no earlier put is in flight
	case errors.Is(put, objstore.ErrRefused) && e.unknownSince.IsZero():
		return false, put // the put certainly had no effect
	}

	// This put or an earlier one has an unknown effect. "Exists" counts as unknown: the object may be our own earlier
	// put, or this one repeated by a proxy. The object at Key decides, if there is one.
	if e.unknownSince.IsZero() {
		e.unknownSince = time.Now()
	}
	if !errors.Is(put, objstore.ErrExists) {
		e.reportUnknown(ctx, put)
	}
	mine, err := e.isOurs(ctx)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		// Absence proves nothing: a put may still be in flight. The only safe step is to put the same bytes again.
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

// put sends the object once, unless the check of the previous object has become too old by the time the request is
// ready.
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

// lastCheck runs when the request is signed and about to be sent. If the process sleeps after it, the signature
// expires and the store refuses the request.
func (e *Entry) lastCheck() error {
	if Recent(e.PreviousSeen, time.Now()) {
		return nil
	}
	return errCheckStale
}

// check verifies that the object before Key still exists, unless that was known within the last minute.
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

// retryable makes err Transient while a put is unresolved, because only a resolved outcome may end the append. It
// leaves err as it is if no put is unresolved, and if err is [ErrPreviousGone], which ends the append in any case.
func (e *Entry) retryable(err error) error {
	if e.unknownSince.IsZero() || errors.Is(err, ErrPreviousGone) {
		return err
	}
	return classify.Mark(Text(err), classify.Transient)
}

// Text returns an error with the text of err and without its class and chain. The refusal of a later request says
// nothing about an earlier put, and a hold inside a fenced error must not count as a hold.
func Text(err error) error { return textError{err} }

type textError struct{ err error }

func (e textError) Error() string { return e.err.Error() }

// PreviousGone returns an error that wraps [ErrPreviousGone], with a class and with the object that is missing.
func PreviousGone(class classify.Class, format string, args ...any) error {
	return classify.Mark(fmt.Errorf("%w: %s", ErrPreviousGone, fmt.Sprintf(format, args...)), class)
}

// Package logappend puts the next object of a log so that exactly one writer's is there, and each writer learns whose it is.
// A table's log and the operations log are written so.
//
// The outcome of a put is won, lost or unknown. Unknown (a timeout, a 5xx, a reset, and "exists", which may be our own
// earlier put) is settled by reading back; while nothing is there, the same bytes are put under the same name again, until
// something is. Whoever went on to the next name before that could be in the log twice.
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
	// maxAge is how old the knowledge that a name is the next one may be when it is put: what is absent within that time
	// has never existed, since nothing younger is taken away.
	maxAge = 60 * time.Second
	// TryTimeout bounds one request: these objects are small, and what takes longer has no answer to wait for.
	TryTimeout = 20 * time.Second
)

// Recent says whether something known at a time is younger than a minute. Both clocks must say so: the monotonic one stands
// still while a machine sleeps, the wall clock may be set back.
func Recent(at, now time.Time) bool {
	mono, wall := now.Sub(at), now.Round(0).Sub(at.Round(0))
	return mono < maxAge && wall < maxAge && wall > -time.Second
}

// ErrPreviousGone is for [Offer.CheckPrevious]: what came before is not there any more, so what is absent may have existed.
var ErrPreviousGone = errors.New("what came before is gone")

// errCheckStale says that a request would have left too late.
var errCheckStale = errors.New("the look at the log is older than a minute")

// Entry is one object that is offered as the next of a log. Its bytes never change; under another name it is another offer.
type Entry struct {
	Store objstore.Store // as it is: nobody below repeats
	Key   string
	Body  []byte
	// PreviousSeen is when the object before Key was last known to exist.
	PreviousSeen time.Time
	// CheckPrevious makes sure of that again. Its error has [ErrPreviousGone] in the chain, with a class that ends the offer, if it does
	// not; another one is tried again.
	CheckPrevious func(context.Context) error
	// IsOurs reads what is at Key now and says whether it is this offer. objstore.ErrNotFound says that nothing is; what
	// cannot be read decides nothing, so it is an error, too.
	IsOurs func(context.Context) (bool, error)
	// OnUnknown hears, each time, why the outcome is not known yet. It may be nil.
	OnUnknown func(ctx context.Context, cause error)

	sent, unknownSince time.Time
}

// Sent is when the first put left, zero before.
func (e *Entry) Sent() time.Time { return e.sent }

// UnknownSince is since when a put may have landed or may land yet, zero if none can. It stays once the outcome is known.
func (e *Entry) UnknownSince() time.Time { return e.unknownSince }

// Try puts the object once and finds out what became of it: won, or lost for ever. An error is Transient while that is not
// known, or known to be "nothing yet"; then the same offer is to be tried again, which is for a guard to do. Others end it:
// a refusal before anything left, or ErrGone.
func (e *Entry) Try(ctx context.Context) (won bool, err error) {
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
		return false, classify.Mark(put, classify.Transient) // nothing has left, and nothing flies
	case errors.Is(put, objstore.ErrRefused) && e.unknownSince.IsZero():
		return false, put // certainly without effect
	}

	// Now or earlier a put left whose effect is unknown. "Exists" is among it: that may be our own earlier put, or this one
	// repeated on its way. What is there now decides, if there is something.
	if e.unknownSince.IsZero() {
		e.unknownSince = time.Now()
	}
	if !errors.Is(put, objstore.ErrExists) {
		e.reportUnknown(ctx, put)
	}
	mine, err := e.isOurs(ctx)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		// Not there, which proves nothing: a put may still be on its way. All that is right is the same put again.
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

// put sends the object once, unless it has become too old when it is ready to leave.
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

// lastCheck is called when the request is signed and about to leave. If the process sleeps after it, the signature grows
// too old to be taken.
func (e *Entry) lastCheck() error {
	if Recent(e.PreviousSeen, time.Now()) {
		return nil
	}
	return errCheckStale
}

// check makes sure that the object before Key still exists, if that was not known within the last minute.
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

// retryable marks an error that must not end the search for an outcome. Without an unresolved put it means what it says.
func (e *Entry) retryable(err error) error {
	if e.unknownSince.IsZero() || errors.Is(err, ErrPreviousGone) {
		return err
	}
	return classify.Mark(Text(err), classify.Transient)
}

// Text keeps an error's text and hides what it is: the refusal of a later request says nothing of an earlier put, and a
// hold inside a fence is none.
func Text(err error) error { return textError{err} }

type textError struct{ err error }

func (e textError) Error() string { return e.err.Error() }

// PreviousGone is an [ErrPreviousGone] with a class, which says what was not there.
func PreviousGone(class classify.Class, format string, args ...any) error {
	return classify.Mark(fmt.Errorf("%w: %s", ErrPreviousGone, fmt.Sprintf(format, args...)), class)
}

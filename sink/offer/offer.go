// Package offer puts the next object of a log so that exactly one writer's is there, and each writer learns whose it is.
// A table's log and the operations log are written so.
//
// The outcome of a put is won, lost or unknown. Unknown (a timeout, a 5xx, a reset, and "exists", which may be our own
// earlier put) is settled by reading back; while nothing is there, the same bytes are put under the same name again, until
// something is. Whoever went on to the next name before that could be in the log twice.
package offer

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

// Young says whether something known at a time is younger than a minute. Both clocks must say so: the monotonic one stands
// still while a machine sleeps, the wall clock may be set back.
func Young(at, now time.Time) bool {
	mono, wall := now.Sub(at), now.Round(0).Sub(at.Round(0))
	return mono < maxAge && wall < maxAge && wall > -time.Second
}

// ErrGone is for [Offer.Before]: what came before is not there any more, so what is absent may have existed.
var ErrGone = errors.New("what came before is gone")

// errStale says that a request would have left too late.
var errStale = errors.New("the look at the log is older than a minute")

// Offer is one object that is offered as the next of a log. Its bytes never change; under another name it is another offer.
type Offer struct {
	Store objstore.Store // as it is: nobody below repeats
	Key   string
	Body  []byte
	// Checked is when the object before Key was last known to exist.
	Checked time.Time
	// Before makes sure of that again. Its error has [ErrGone] in the chain, with a class that ends the offer, if it does
	// not; another one is tried again.
	Before func(context.Context) error
	// Mine reads what is at Key now and says whether it is this offer. objstore.ErrNotFound says that nothing is; what
	// cannot be read decides nothing, so it is an error, too.
	Mine func(context.Context) (bool, error)
	// Doubt hears, each time, why the outcome is not known yet. It may be nil.
	Doubt func(ctx context.Context, cause error)

	sent, unresolved time.Time
}

// Sent is when the first put left, zero before.
func (o *Offer) Sent() time.Time { return o.sent }

// Unresolved is since when a put may have landed or may land yet, zero if none can. It stays once the outcome is known.
func (o *Offer) Unresolved() time.Time { return o.unresolved }

// Try puts the object once and finds out what became of it: won, or lost for ever. An error is Transient while that is not
// known, or known to be "nothing yet"; then the same offer is to be tried again, which is for a guard to do. Others end it:
// a refusal before anything left, or ErrGone.
func (o *Offer) Try(ctx context.Context) (won bool, err error) {
	put := errStale
	for tries := 0; tries < 3 && errors.Is(put, errStale); tries++ { // stale again only if we sleep between check and put
		if err := o.check(ctx); err != nil {
			return false, o.stillOpen(err)
		}
		put = o.put(ctx)
	}
	switch {
	case put == nil:
		return true, nil
	case errors.Is(put, objstore.ErrNotSent) && o.unresolved.IsZero():
		return false, classify.Mark(put, classify.Transient) // nothing has left, and nothing flies
	case errors.Is(put, objstore.ErrRefused) && o.unresolved.IsZero():
		return false, put // certainly without effect
	}

	// Now or earlier a put left whose effect is unknown. "Exists" is among it: that may be our own earlier put, or this one
	// repeated on its way. What is there now decides, if there is something.
	if o.unresolved.IsZero() {
		o.unresolved = time.Now()
	}
	if !errors.Is(put, objstore.ErrExists) {
		o.doubt(ctx, put)
	}
	mine, err := o.mine(ctx)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		// Not there, which proves nothing: a put may still be on its way. All that is right is the same put again.
		o.doubt(ctx, put)
		return false, o.stillOpen(put)
	case err != nil:
		o.doubt(ctx, err)
		return false, o.stillOpen(err)
	case mine:
		return true, nil
	}
	return false, nil
}

// put sends the object once, unless it has become too old when it is ready to leave.
func (o *Offer) put(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, TryTimeout)
	defer cancel()
	now := time.Now()
	err := o.Store.Put(objstore.WithLastCheck(ctx, o.lastCheck), o.Key, bytes.NewReader(o.Body), objstore.IfAbsent)
	if o.sent.IsZero() && !errors.Is(err, objstore.ErrNotSent) {
		o.sent = now
	}
	return err
}

// lastCheck is called when the request is signed and about to leave. If the process sleeps after it, the signature grows
// too old to be taken.
func (o *Offer) lastCheck() error {
	if Young(o.Checked, time.Now()) {
		return nil
	}
	return errStale
}

// check makes sure that the object before Key still exists, if that was not known within the last minute.
func (o *Offer) check(ctx context.Context) error {
	now := time.Now()
	if Young(o.Checked, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, TryTimeout)
	defer cancel()
	if err := o.Before(ctx); err != nil {
		return err
	}
	o.Checked = now
	return nil
}

func (o *Offer) mine(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, TryTimeout)
	defer cancel()
	return o.Mine(ctx)
}

func (o *Offer) doubt(ctx context.Context, cause error) {
	if o.Doubt != nil {
		o.Doubt(ctx, cause)
	}
}

// stillOpen marks an error that must not end the search for an outcome. Without an unresolved put it means what it says.
func (o *Offer) stillOpen(err error) error {
	if o.unresolved.IsZero() || errors.Is(err, ErrGone) {
		return err
	}
	return classify.Mark(Text(err), classify.Transient)
}

// Text keeps an error's text and hides what it is: the refusal of a later request says nothing of an earlier put, and a
// hold inside a fence is none.
func Text(err error) error { return textError{err} }

type textError struct{ err error }

func (e textError) Error() string { return e.err.Error() }

// Gone is an [ErrGone] with a class, which says what was not there.
func Gone(class classify.Class, format string, args ...any) error {
	return classify.Mark(fmt.Errorf("%w: %s", ErrGone, fmt.Sprintf(format, args...)), class)
}

package opslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/sink/delta/objstore"
)

// proposal is what one append offers as one seq. Its bytes never change; another seq is another proposal.
type proposal struct {
	entry  Entry
	object []byte

	// checked is when the entry before was last known to exist: within maxAge of it an absent seq has never existed.
	checked time.Time
	// unresolved is since when a put may have landed or may land yet, zero if none can.
	unresolved time.Time
}

// errGone says that the entry before ours is not there: what is absent may have existed.
var errGone = errors.New("the operations log lost entries meanwhile")

// errStale says that a request would have left too late.
var errStale = errors.New("the look at the operations log is older than a minute")

// offer puts p until it is known whose seq it is. It retries behind the guard without limit; the error says why it gave up,
// with ErrUndecided if a put is unresolved.
func (l *Log) offer(ctx context.Context, p *proposal) (won bool, err error) {
	err = l.guard.Do(ctx, func(ctx context.Context) (err error) {
		won, err = l.try(ctx, p)
		return err
	})
	switch {
	case err == nil:
		if !p.unresolved.IsZero() {
			l.log.InfoContext(ctx, "the outcome of an operation is known", "seq", p.entry.Seq, "id", p.entry.ID, "ours", won)
		}
		return won, nil
	case errors.Is(err, errGone):
		err = broken(max(p.entry.Seq-1, 1), "%v", err)
	default:
		err = l.failed(ctx, err)
	}
	if !p.unresolved.IsZero() {
		err = fmt.Errorf("%w: seq %d, id %s: %w", ErrUndecided, p.entry.Seq, p.entry.ID, err)
	}
	return false, err
}

// try puts p once and finds out what became of it. The error is Transient while that is unknown, or known to be "nothing
// yet".
func (l *Log) try(ctx context.Context, p *proposal) (won bool, err error) {
	put := errStale
	for tries := 0; tries < 3 && errors.Is(put, errStale); tries++ { // stale again only if we sleep between check and put
		if err := l.checkAge(ctx, p); err != nil {
			return false, p.stillOpen(err)
		}
		put = l.put(ctx, p)
	}
	switch {
	case put == nil:
		return true, nil
	case errors.Is(put, objstore.ErrNotSent) && p.unresolved.IsZero():
		return false, classify.Mark(put, classify.Transient) // nothing has left, and nothing flies
	case errors.Is(put, objstore.ErrRefused) && p.unresolved.IsZero():
		return false, put // certainly without effect
	}

	// Now or earlier a put left whose effect is unknown. "Exists" is among it: that may be our own earlier put. What is
	// there now decides, if there is something.
	if p.unresolved.IsZero() {
		p.unresolved = time.Now()
	}
	found, err := l.readOnce(ctx, p.entry.Seq)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		// Not there, which proves nothing: a put may still be on its way. All that is right is the same put again.
		return false, p.stillOpen(put)
	case err != nil:
		return false, p.stillOpen(err)
	case bytes.Equal(found, p.object):
		return true, nil
	}
	if _, err := parse(found); err != nil { // damaged on its way, or no entry: it must not pass for another's
		return false, p.stillOpen(fmt.Errorf("seq %d: %w", p.entry.Seq, err))
	}
	return false, nil
}

// put sends p once, unless it has become too old when it is ready to leave.
func (l *Log) put(ctx context.Context, p *proposal) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return l.store.Put(objstore.WithLastCheck(ctx, p.lastCheck), l.dir+name(p.entry.Seq), bytes.NewReader(p.object), objstore.IfAbsent)
}

// lastCheck is called when the request is signed and about to leave. If the process sleeps after it, the signature grows
// too old to be taken.
func (p *proposal) lastCheck() error {
	if young(p.checked, time.Now()) {
		return nil
	}
	return errStale
}

// checkAge makes sure that the entry before p still exists, if that was not known within the last minute. Nobody takes
// entries away; if somebody did, an absent seq may have existed, and p would make a second one of it.
func (l *Log) checkAge(ctx context.Context, p *proposal) error {
	now := time.Now()
	if young(p.checked, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if p.entry.Seq == 1 { // nothing comes before: who came first meanwhile must be a first one, too
		for o, err := range l.store.List(ctx, l.dir, "") {
			if err != nil {
				return err
			}
			if seq, ok := seqOf(o.Key[len(l.dir):]); ok && seq > 1 {
				return classify.Mark(fmt.Errorf("%w: there is %s", errGone, o.Key), classify.Fatal)
			} else if ok {
				break
			}
		}
	} else if _, err := l.store.Head(ctx, l.dir+name(p.entry.Seq-1)); errors.Is(err, objstore.ErrNotFound) {
		return classify.Mark(fmt.Errorf("%w: no seq %d", errGone, p.entry.Seq-1), classify.Fatal)
	} else if err != nil {
		return err
	}
	p.checked = now
	return nil
}

// stillOpen marks an error that must not end the search for an outcome. Without an unresolved put it means what it says.
func (p *proposal) stillOpen(err error) error {
	if p.unresolved.IsZero() || errors.Is(err, errGone) {
		return err
	}
	return classify.Mark(textError{err}, classify.Transient)
}

// textError keeps an error's text and hides what it is: a refusal of a later request says nothing of an earlier put.
type textError struct{ err error }

func (e textError) Error() string { return e.err.Error() }

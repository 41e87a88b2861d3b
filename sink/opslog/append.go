package opslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/sink/delta/objstore"
	"sluice/sink/logappend"
)

// proposal is one entry tried at one seq. Its bytes never change; the same operation at another seq is another
// proposal.
type proposal struct {
	logappend.Entry
	entry Entry
}

// proposal returns the append of an entry. checked is when the entry before it was last known to exist.
func (l *Log) proposal(e Entry, object []byte, checked time.Time) *proposal {
	return &proposal{entry: e, Entry: logappend.Entry{
		Store: l.store, Key: l.dir + name(e.Seq), Body: object, PreviousSeen: checked,
		CheckPrevious: func(ctx context.Context) error { return l.checkBefore(ctx, e.Seq) },
		IsOurs:        func(ctx context.Context) (bool, error) { return l.isThere(ctx, e.Seq, object) },
	}}
}

// append puts p until its outcome is known and reports whether it is committed. It retries behind the guard without
// limit. The error wraps ErrUndecided if a put is unresolved.
func (l *Log) append(ctx context.Context, p *proposal) (committed bool, err error) {
	err = l.guard.Do(ctx, func(ctx context.Context) (err error) {
		committed, err = p.Try(ctx)
		return err
	})
	switch {
	case err == nil:
		if !p.UnknownSince().IsZero() {
			l.log.InfoContext(ctx, "outcome of an operation resolved", "seq", p.entry.Seq, "id", p.entry.ID, "ours", committed)
		}
		return committed, nil
	case errors.Is(err, logappend.ErrPreviousGone):
		err = broken(max(p.entry.Seq-1, 1), "%v", err)
	default:
		err = l.failed(ctx, err)
	}
	if !p.UnknownSince().IsZero() {
		err = fmt.Errorf("%w: seq %d, id %s: %w", ErrUndecided, p.entry.Seq, p.entry.ID, err)
	}
	return false, err
}

// isThere reports whether the object at a seq has these bytes. An object that cannot be parsed is an error, because it
// may be our entry, damaged on the way.
func (l *Log) isThere(ctx context.Context, seq int64, object []byte) (bool, error) {
	found, err := l.readOnce(ctx, seq)
	if err != nil || bytes.Equal(found, object) {
		return err == nil, err
	}
	if _, err := parse(found); err != nil { // a damaged response or a foreign object: no proof that another entry has the seq
		return false, fmt.Errorf("seq %d: %w", seq, err)
	}
	return false, nil
}

// checkBefore verifies that the entry before a seq still exists. The program never removes entries. If one is
// missing, the absent seq may have existed, and a put would create a second entry of that seq.
func (l *Log) checkBefore(ctx context.Context, seq int64) error {
	if seq == 1 { // before seq 1 there is no entry: the log must still be empty
		for o, err := range l.store.List(ctx, l.dir, "") {
			if err != nil {
				return err
			}
			if seq, ok := seqOf(o.Key[len(l.dir):]); ok && seq > 1 {
				return logappend.PreviousGone(classify.Fatal, "the operations log lost its first entries: there is %s", o.Key)
			} else if ok {
				break
			}
		}
		return nil
	}
	_, err := l.store.Head(ctx, l.dir+name(seq-1))
	if errors.Is(err, objstore.ErrNotFound) {
		return logappend.PreviousGone(classify.Fatal, "the operations log lost entries meanwhile: no seq %d", seq-1)
	}
	return err
}

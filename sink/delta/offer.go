package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// proposal is what one commit offers as one version. Its bytes never change; another version is another proposal.
type proposal struct {
	version int64
	txnID   string
	batch   string // for log lines
	body    []byte
	heads   []deltalog.Action // what a reader of heads would find in body

	// checked is when version-1 was last known to exist: within maxAge of it an absent version has never existed.
	checked time.Time
	// sent is when the first put left, zero before.
	sent time.Time
	// unresolved is since when a put may have landed or may land yet, zero if none can.
	unresolved time.Time
	// doubted is true once that was not settled at once, warned once it has lasted.
	doubted, warned bool
}

// outcome of a proposal that is decided.
type outcome uint8

const (
	won  outcome = iota
	lost         // the version is another's
)

const (
	// tryTimeout bounds one request about a commit: they are small, and what takes longer has no answer to wait for.
	tryTimeout = 20 * time.Second
)

// errGone says that the version before ours was cleaned up: an absent version may have existed.
var errGone = errors.New("the log was cleaned up beyond the snapshot")

// errStale says that a request would have left too late.
var errStale = errors.New("the snapshot is older than a minute")

// offer puts p until it is known whose version it is. It retries behind the guard without limit; the error says why it
// gave up: Fatal (HoldError) if the store refused before anything left, Fenced if the log was cleaned up meanwhile,
// Canceled if ctx ended, with connector.ErrUndecided in the last two if a put is unresolved.
func (t *Table) offer(ctx context.Context, p *proposal, files *staged) (outcome, error) {
	var known outcome
	files.setMayBeNamed(true)
	err := t.guard.Do(ctx, func(ctx context.Context) (err error) {
		known, err = t.try(ctx, p)
		return err
	})
	t.setUndecided(nil)
	switch {
	case err == nil && known == won:
		files.setNamed()
		t.resolved(ctx, p, "ours")
		return won, nil
	case err == nil:
		files.setMayBeNamed(false)
		t.resolved(ctx, p, "another's")
		return lost, nil
	case !p.unresolved.IsZero():
		t.metrics.commits.WithLabelValues(resultUndecided).Inc()
		t.log.WarnContext(ctx, "a commit is given up undecided; its files stay, the position comes from the log",
			"batch_id", p.batch, "version", p.version, "txn_id", p.txnID, "since", p.unresolved, "err", err)
		class := classify.Canceled
		if errors.Is(err, errGone) {
			class, t.head = classify.Fenced, nil
		}
		return lost, classify.Mark(fmt.Errorf("%w: version %d: %w", connector.ErrUndecided, p.version, textError{err}), class)
	}
	files.setMayBeNamed(false)
	if errors.Is(err, errGone) {
		t.head = nil
		return lost, fenced(err)
	}
	return lost, t.failed(canceledBy(ctx, fmt.Errorf("commit version %d: %w", p.version, err)))
}

// try puts p once and finds out what became of it. The error is Transient while that is unknown, or known to be
// "nothing yet".
func (t *Table) try(ctx context.Context, p *proposal) (outcome, error) {
	put := errStale
	for tries := 0; tries < 3 && errors.Is(put, errStale); tries++ { // stale again only if we sleep between check and put
		if err := t.checkAge(ctx, p); err != nil {
			return lost, p.stillOpen(err)
		}
		put = t.put(ctx, p)
	}
	switch {
	case put == nil:
		return won, nil
	case errors.Is(put, objstore.ErrNotSent) && p.unresolved.IsZero():
		return lost, classify.Mark(put, classify.Transient) // nothing has left, and nothing flies
	case errors.Is(put, objstore.ErrRefused) && p.unresolved.IsZero():
		return lost, put // certainly without effect
	}

	// Now or earlier a put left whose effect is unknown. "Exists" is among it: that may be our own earlier put, or this one
	// repeated on its way. What is at the version now decides, if there is something.
	if p.unresolved.IsZero() {
		p.unresolved = time.Now()
	}
	if !errors.Is(put, objstore.ErrExists) {
		t.doubt(ctx, p, put)
	}
	id, err := t.readBack(ctx, p)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		// Not there, which proves nothing: a put may still be on its way. All that is right is the same put again.
		t.doubt(ctx, p, put)
		return lost, p.stillOpen(put)
	case err != nil:
		t.doubt(ctx, p, err)
		return lost, p.stillOpen(err)
	case id == p.txnID:
		return won, nil
	}
	return lost, nil
}

// put sends p once, unless it has become too old when it is ready to leave.
func (t *Table) put(ctx context.Context, p *proposal) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	now := time.Now()
	err := t.raw.Put(objstore.WithLastCheck(ctx, p.lastCheck), deltalog.CommitKey(p.version), bytes.NewReader(p.body), objstore.IfAbsent)
	if p.sent.IsZero() && !errors.Is(err, objstore.ErrNotSent) {
		p.sent = now
	}
	return err
}

// lastCheck is called when the request is signed and about to leave. If the process sleeps after it, the signature grows
// too old to be taken.
func (p *proposal) lastCheck() error {
	if young(p.checked, time.Now()) {
		return nil
	}
	return errStale
}

// checkAge makes sure that the version before p still exists, if that was not known within the last minute. If it does,
// nothing at or after p's version can have been cleaned up.
func (t *Table) checkAge(ctx context.Context, p *proposal) error {
	now := time.Now()
	if young(p.checked, now) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if p.version == 0 { // nothing comes before: there must be no sign of later ones
		for o, err := range t.raw.List(ctx, deltalog.Dir, deltalog.CommitKey(0)) {
			if err != nil {
				return err
			}
			return classify.Mark(fmt.Errorf("%w: there is %s", errGone, o.Key), classify.Fenced)
		}
	} else if _, err := t.raw.Head(ctx, deltalog.CommitKey(p.version-1)); errors.Is(err, objstore.ErrNotFound) {
		return classify.Mark(fmt.Errorf("%w: no version %d", errGone, p.version-1), classify.Fenced)
	} else if err != nil {
		return err
	}
	p.checked = now
	return nil
}

// readBack returns the id of the commit at p's version, "" for a commit without one, which is not ours. What cannot be
// read as a commit decides nothing: a damaged answer must not pass for another's commit.
func (t *Table) readBack(ctx context.Context, p *proposal) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	c, err := deltalog.ReadCommit(ctx, t.raw, p.version, deltalog.All)
	if err == nil && len(c.Actions) == 0 {
		err = fmt.Errorf("%w: version %d is empty", deltalog.ErrCorrupt, p.version)
	}
	return c.Info().TxnID, err
}

// stillOpen marks an error that must not end the search for an outcome. Without an unresolved put it means what it says.
func (p *proposal) stillOpen(err error) error {
	if p.unresolved.IsZero() || errors.Is(err, errGone) {
		return err
	}
	return classify.Mark(textError{err}, classify.Transient)
}

// doubt notes that the outcome of a put is unknown, for people to see.
func (t *Table) doubt(ctx context.Context, p *proposal, cause error) {
	if !p.doubted {
		p.doubted = true
		t.metrics.unresolved.Inc()
	}
	t.setUndecided(&connector.Hold{
		Reason: connector.ReasonCommitUndecided, Since: p.unresolved, Offset: -1,
		Detail: fmt.Sprintf("nobody knows whether version %d was written: %v", p.version, cause),
	})
	if !p.warned && time.Since(p.unresolved) >= undecidedAfter {
		p.warned = true
		t.log.WarnContext(ctx, "the outcome of a commit is unknown for a minute; the same version is put again until it is known",
			"batch_id", p.batch, "version", p.version, "txn_id", p.txnID, "err", cause)
	}
}

// resolved logs the end of a doubt.
func (t *Table) resolved(ctx context.Context, p *proposal, whose string) {
	if p.doubted {
		t.log.InfoContext(ctx, "the outcome of a commit is known", "batch_id", p.batch, "version", p.version, "whose", whose,
			"unknown_for", time.Since(p.unresolved))
	}
}

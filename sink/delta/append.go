package delta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/logappend"
)

// proposal is what one commit offers as one version. Its bytes never change; another version is another proposal.
type proposal struct {
	logappend.Entry
	version int64
	txnID   string
	batch   string
	heads   []deltalog.Action // what a reader of heads would find in its bytes

	// outcomeWasUnknown is true once the outcome was not settled at once, warned once that has lasted.
	outcomeWasUnknown, warned bool
}

// proposal returns body as what is offered as a version, the one before which was last known to exist at a time.
func (t *Table) proposal(version int64, txnID string, body []byte, checked time.Time) *proposal {
	p := &proposal{version: version, txnID: txnID}
	p.Entry = logappend.Entry{
		Store: t.raw, Key: deltalog.CommitKey(version), Body: body, PreviousSeen: checked,
		CheckPrevious: func(ctx context.Context) error { return t.checkBefore(ctx, version) },
		IsOurs: func(ctx context.Context) (bool, error) {
			id, err := t.readBack(ctx, version)
			return id == p.txnID, err
		},
		OnUnknown: func(ctx context.Context, cause error) { t.outcomeUnknown(ctx, p, cause) },
	}
	return p
}

// outcome of a proposal that is decided.
type outcome uint8

const (
	committed outcome = iota
	conflict          // the version is another's
)

// append puts p until it is known whose version it is. It retries behind the guard without limit; the error says why it
// gave up: Fatal (hold.Error) if the store refused before anything left, Fenced if the log was cleaned up meanwhile,
// Canceled if ctx ended, with connector.ErrUndecided in the last two if a put is unresolved.
func (t *Table) append(ctx context.Context, p *proposal, files *staged) (outcome, error) {
	var mine bool
	files.setMayBeNamed(true)
	defer t.setUndecided(nil) // however this ends: the next look at the log decides
	err := t.guard.Do(ctx, func(ctx context.Context) (err error) {
		mine, err = p.Try(ctx)
		return err
	}, "batch_id", p.batch)
	switch {
	case err == nil && mine:
		files.setNamed()
		t.resolved(ctx, p, "ours")
		return committed, nil
	case err == nil:
		files.setMayBeNamed(false)
		t.resolved(ctx, p, "another's")
		return conflict, nil
	case !p.UnknownSince().IsZero():
		t.metrics.commits.WithLabelValues(resultUndecided).Inc()
		t.log.WarnContext(ctx, "a commit is given up undecided; its files stay, the position comes from the log",
			"batch_id", p.batch, "version", p.version, "txn_id", p.txnID, "since", p.UnknownSince(), "err", err)
		class := classify.Canceled
		if errors.Is(err, logappend.ErrPreviousGone) {
			class, t.head = classify.Fenced, nil
		}
		return conflict, classify.Mark(fmt.Errorf("%w: version %d: %w", connector.ErrUndecided, p.version, logappend.Text(err)), class)
	}
	files.setMayBeNamed(false)
	if errors.Is(err, logappend.ErrPreviousGone) {
		t.head = nil
		return conflict, fenced(err)
	}
	return conflict, t.failed(canceledBy(ctx, fmt.Errorf("commit version %d: %w", p.version, err)))
}

// checkBefore makes sure that the version before one still exists. If it does, nothing at or after that one can have been
// cleaned up.
func (t *Table) checkBefore(ctx context.Context, version int64) error {
	if version == 0 { // nothing comes before: there must be no sign of later ones
		for o, err := range t.raw.List(ctx, deltalog.Dir, deltalog.CommitKey(0)) {
			if err != nil {
				return err
			}
			return logappend.PreviousGone(classify.Fenced, "the log was cleaned up beyond the snapshot: there is %s", o.Key)
		}
		return nil
	}
	_, err := t.raw.Head(ctx, deltalog.CommitKey(version-1))
	if errors.Is(err, objstore.ErrNotFound) {
		return logappend.PreviousGone(classify.Fenced, "the log was cleaned up beyond the snapshot: no version %d", version-1)
	}
	return err
}

// readBack returns the id of the commit at a version, "" for a commit without one, which is not ours. What cannot be
// read as a commit decides nothing: a damaged answer must not pass for another's commit.
func (t *Table) readBack(ctx context.Context, version int64) (string, error) {
	c, err := deltalog.ReadCommit(ctx, t.raw, version, deltalog.All)
	if err == nil && len(c.Actions) == 0 {
		err = fmt.Errorf("%w: version %d is empty", deltalog.ErrCorrupt, version)
	}
	return c.Info().TxnID, err
}

// outcomeUnknown notes that the outcome of a put is unknown, for people to see.
func (t *Table) outcomeUnknown(ctx context.Context, p *proposal, cause error) {
	if !p.outcomeWasUnknown {
		p.outcomeWasUnknown = true
		t.metrics.unresolved.Inc()
	}
	t.setUndecided(&hold.Hold{
		Reason: hold.CommitUndecided, Since: p.UnknownSince(), Offset: -1,
		Detail: fmt.Sprintf("nobody knows whether version %d was written: %v", p.version, cause),
	})
	if !p.warned && time.Since(p.UnknownSince()) >= undecidedAfter {
		p.warned = true
		t.log.WarnContext(ctx, "the outcome of a commit is unknown for a minute; the same version is put again until it is known",
			"batch_id", p.batch, "version", p.version, "txn_id", p.txnID, "err", cause)
	}
}

// resolved logs the end of a doubt.
func (t *Table) resolved(ctx context.Context, p *proposal, whose string) {
	if p.outcomeWasUnknown {
		t.log.InfoContext(ctx, "the outcome of a commit is known", "batch_id", p.batch, "version", p.version, "whose", whose,
			"unknown_for", time.Since(p.UnknownSince()))
	}
}

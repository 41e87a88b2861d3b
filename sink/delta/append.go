package delta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/logappend"
)

// proposal is one commit tried as one version. Its bytes never change; the same commit at another version is another
// proposal.
type proposal struct {
	logappend.Entry
	version int64
	txnID   string
	batch   string
	heads   []deltalog.Action // the txns and the metaData of the commit; once it is committed, they are applied to the head
	changes schema.Changes    // what the metaData changes

	// outcomeWasUnknown is true once the first put left the outcome unknown; warned is true once that was logged.
	outcomeWasUnknown, warned bool
}

// proposal returns the proposal to append body as the given version. checked is when the version before it was last
// known to exist, and for version 0 when the log was last known to be empty.
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

// outcome is the result of a proposal.
type outcome uint8

const (
	noOutcome outcome = iota // is returned together with an error
	committed
	conflict // another writer's commit has this version
)

// append puts p until its outcome is known. It retries behind the guard without limit. Errors: a hold.Error with
// hold.StoreDenied if the store refused and no put can have taken effect, Fenced if the log was cleaned up meanwhile,
// Canceled if ctx ended. A Fenced or Canceled error wraps connector.ErrUndecided if the effect of a put is unknown.
func (t *Table) append(ctx context.Context, p *proposal, files *staged) (outcome, error) {
	var mine bool
	files.setMayBeNamed(true)
	defer t.setUndecided(nil) // no hold stays after append: if the outcome is still unknown, the next refresh shows whose commit has the version
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
		t.log.WarnContext(ctx, "gave up an undecided commit; keeping its files, the log has the position",
			"batch_id", p.batch, "version", p.version, "txn_id", p.txnID, "since", p.UnknownSince(), "err", err)
		class := classify.Canceled
		if errors.Is(err, logappend.ErrPreviousGone) {
			class, t.head = classify.Fenced, nil
		}
		return noOutcome, classify.Mark(fmt.Errorf("%w: version %d: %w", connector.ErrUndecided, p.version, logappend.Text(err)), class)
	}
	files.setMayBeNamed(false)
	if errors.Is(err, logappend.ErrPreviousGone) {
		t.head = nil
		return noOutcome, fenced(err)
	}
	return noOutcome, t.failed(canceledBy(ctx, fmt.Errorf("commit version %d: %w", p.version, err)))
}

// checkBefore returns nil if the version before the given one still exists, for version 0 if the log is empty. If not,
// the error wraps [logappend.ErrPreviousGone]. Log cleanup removes older versions first, so it cannot have removed the
// given version while the one before it exists.
func (t *Table) checkBefore(ctx context.Context, version int64) error {
	if version == 0 { // version 0 has no version before it, so no version may exist at all
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

// readBack returns the txnId of the commit at a version, "" if that commit has none and so is not ours. A response
// that cannot be parsed is an error: a damaged response must not count as another writer's commit.
func (t *Table) readBack(ctx context.Context, version int64) (string, error) {
	c, err := deltalog.ReadCommit(ctx, t.raw, version, deltalog.All)
	if err == nil && len(c.Actions) == 0 {
		err = fmt.Errorf("%w: version %d is empty", deltalog.ErrCorrupt, version)
	}
	return c.Info().TxnID, err
}

// outcomeUnknown records that the outcome of p is unknown. It counts p in a metric once, and stores a hold that
// [Table.Undecided] returns after a minute. After a minute it also logs the cause, once.
func (t *Table) outcomeUnknown(ctx context.Context, p *proposal, cause error) {
	if !p.outcomeWasUnknown {
		p.outcomeWasUnknown = true
		t.metrics.unresolved.Inc()
	}
	t.setUndecided(&hold.Hold{
		Reason: hold.CommitUndecided, Since: p.UnknownSince(), Offset: -1,
		Detail: fmt.Sprintf("the store has not confirmed whether version %d was written: %v", p.version, cause),
	})
	if !p.warned && time.Since(p.UnknownSince()) >= undecidedAfter {
		p.warned = true
		t.log.WarnContext(ctx, "commit outcome unknown for a minute; retrying the same version",
			"batch_id", p.batch, "version", p.version, "txn_id", p.txnID, "err", cause)
	}
}

// resolved logs that an unknown outcome has become known.
func (t *Table) resolved(ctx context.Context, p *proposal, whose string) {
	if p.outcomeWasUnknown {
		t.log.InfoContext(ctx, "commit outcome resolved", "batch_id", p.batch, "version", p.version, "whose", whose,
			"unknown_for", time.Since(p.UnknownSince()))
	}
}
